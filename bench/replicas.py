#!/usr/bin/env python3
"""Requests a second of one engine and of several behind one front: motley serve --dp D on GPUs.

    bench/replicas.py MOTLEY DEMO_MODEL FOLDER [LAYERS]

Writes a model of qwen3-30b-a3b's shape into FOLDER, its first LAYERS layers (8) with random weights and the
demo's tokenizer, and sends it the same load for each engine: 64 requests that are always under way.
"""

import http.client
import json
import pathlib
import shutil
import socket
import struct
import subprocess
import sys
import time

import numpy as np

HIDDEN, INTER, EXPERTS, HEADS, KV_HEADS, HEAD_DIM = 2048, 768, 128, 32, 4, 128
PER_ENGINE = 64


def config(vocabulary: int, layers: int) -> dict:
    return {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "vocab_size": vocabulary,
            "hidden_size": HIDDEN, "intermediate_size": 6144, "num_hidden_layers": layers, "num_attention_heads": HEADS,
            "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM, "num_experts": EXPERTS, "num_experts_per_tok": 8,
            "moe_intermediate_size": INTER, "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [],
            "max_position_embeddings": 4096, "rope_theta": 1000000.0, "rms_norm_eps": 1e-06, "hidden_act": "silu",
            "attention_bias": False, "use_sliding_window": False, "tie_word_embeddings": False, "torch_dtype": "bfloat16"}


def shapes_of(layer: int) -> dict:
    at = f"model.layers.{layer}."
    shapes = {at + "input_layernorm.weight": [HIDDEN], at + "post_attention_layernorm.weight": [HIDDEN],
              at + "self_attn.q_proj.weight": [HEADS * HEAD_DIM, HIDDEN],
              at + "self_attn.k_proj.weight": [KV_HEADS * HEAD_DIM, HIDDEN],
              at + "self_attn.v_proj.weight": [KV_HEADS * HEAD_DIM, HIDDEN],
              at + "self_attn.o_proj.weight": [HIDDEN, HEADS * HEAD_DIM],
              at + "self_attn.q_norm.weight": [HEAD_DIM], at + "self_attn.k_norm.weight": [HEAD_DIM],
              at + "mlp.gate.weight": [EXPERTS, HIDDEN]}
    for expert in range(EXPERTS):
        own = f"{at}mlp.experts.{expert}."
        shapes |= {own + "gate_proj.weight": [INTER, HIDDEN], own + "up_proj.weight": [INTER, HIDDEN],
                   own + "down_proj.weight": [HIDDEN, INTER]}
    return shapes


def write_model(folder: pathlib.Path, demo: pathlib.Path, layers: int) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(demo / name, folder / name)
    vocabulary = json.loads((demo / "config.json").read_text())["vocab_size"]
    (folder / "config.json").write_text(json.dumps(config(vocabulary, layers)))
    shapes = {"model.embed_tokens.weight": [vocabulary, HIDDEN], "model.norm.weight": [HIDDEN],
              "lm_head.weight": [vocabulary, HIDDEN]}
    for layer in range(layers):
        shapes |= shapes_of(layer)
    header, at = {}, 0
    for name, shape in shapes.items():
        size = 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    numbers = (np.random.default_rng(1).standard_normal(1 << 25, dtype=np.float32) * 0.02).view(np.uint32)
    noise = (numbers >> 16).astype(np.uint16).tobytes()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        # Matrices begin at different places of the noise.
        for index, shape in enumerate(shapes.values()):
            left = 2 * int(np.prod(shape))
            begin = index * 9176 % (len(noise) // 2) // 2 * 2
            while left > 0:
                piece = noise[begin:begin + left]
                file.write(piece)
                left -= len(piece)
                begin = 0
    return vocabulary


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def is_healthy(port: int) -> bool:
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False


def main() -> int:
    if len(sys.argv) < 4:
        print(__doc__)
        return 2
    motley, demo, folder = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    vocabulary = write_model(folder, demo, int(sys.argv[4]) if len(sys.argv) > 4 else 8)
    for engines in (1, 2):
        port = free_port()
        with subprocess.Popen([motley, "serve", str(folder), "--device", "cuda", "--dp", str(engines), "--port", str(port),
                               "--log-level", "warning"]) as server:
            try:
                deadline = time.monotonic() + 120
                while not is_healthy(port):
                    if server.poll() is not None or time.monotonic() > deadline:
                        print(f"--dp {engines}: the server did not start")
                        return 1
                    time.sleep(0.2)
                print(f"== {engines} engine(s)", flush=True)
                for load in sorted({PER_ENGINE, PER_ENGINE * engines}):
                    subprocess.run([motley, "bench", "--url", f"http://127.0.0.1:{port}", "--vocabulary", str(vocabulary),
                                    "--concurrency", str(load), "--requests", str(10 * load)], check=True)
            finally:
                server.terminate()
    return 0


if __name__ == "__main__":
    sys.exit(main())
