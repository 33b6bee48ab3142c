#!/usr/bin/env python3
"""Writes a checkpoint in the shape of Qwen3-30B-A3B with random bf16 weights, for measuring how long loading takes.

    python3 tools/make_checkpoint.py OUT [--layers 48] [--processes 16]

57 GB with all layers, in shards of 4 GB, with the index, a config and a tokenizer of 151,936 entries. Every shard repeats
one random block, so that writing is as fast as the disk; numbers have the sizes that trained weights have. The files are
in the page cache when it is done, as far as memory allows. Needs nothing but Python.
"""

import argparse
import json
import multiprocessing
import os
import random
import struct
import sys
import time
from dataclasses import dataclass
from pathlib import Path

HIDDEN, INTERMEDIATE, EXPERTS, VOCABULARY = 2048, 768, 128, 151936
HEADS, KV_HEADS, HEAD_WIDTH = 32, 4, 128
SHARD_BYTES = 4 << 30
BLOCK_BYTES = 64 << 20

# The upper bytes of bf16 numbers, by either sign: their sizes lie between two powers of two, two apart.
WEIGHTS = (0x3C, 0xBC)  # 0.008 to 0.03
EMBEDDINGS = (0x3F, 0xBF)  # 0.5 to 2
OUTPUTS = (0x3A, 0xBA)  # 0.0005 to 0.002: attention's output, see src/model/weights/random_weights.h


@dataclass(frozen=True)
class Tensor:
    name: str
    shape: tuple[int, ...]
    upper: tuple[int, int] | None  # None: ones

    def bytes(self) -> int:
        count = 2
        for size in self.shape:
            count *= size
        return count


def config(layers: int) -> dict:
    return {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "hidden_size": HIDDEN,
        "intermediate_size": 6144,
        "moe_intermediate_size": INTERMEDIATE,
        "num_experts": EXPERTS,
        "num_experts_per_tok": 8,
        "norm_topk_prob": True,
        "num_hidden_layers": layers,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_WIDTH,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 40960,
        "rope_theta": 1000000.0,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "eos_token_id": 0,
    }


def tensors(layers: int) -> list[Tensor]:
    made = [Tensor("model.embed_tokens.weight", (VOCABULARY, HIDDEN), EMBEDDINGS)]
    for layer in range(layers):
        prefix = f"model.layers.{layer}"
        attention = f"{prefix}.self_attn"
        made += [
            Tensor(f"{prefix}.input_layernorm.weight", (HIDDEN,), None),
            Tensor(f"{prefix}.post_attention_layernorm.weight", (HIDDEN,), None),
            Tensor(f"{attention}.q_norm.weight", (HEAD_WIDTH,), None),
            Tensor(f"{attention}.k_norm.weight", (HEAD_WIDTH,), None),
            Tensor(f"{attention}.q_proj.weight", (HEADS * HEAD_WIDTH, HIDDEN), WEIGHTS),
            Tensor(f"{attention}.k_proj.weight", (KV_HEADS * HEAD_WIDTH, HIDDEN), WEIGHTS),
            Tensor(f"{attention}.v_proj.weight", (KV_HEADS * HEAD_WIDTH, HIDDEN), WEIGHTS),
            Tensor(f"{attention}.o_proj.weight", (HIDDEN, HEADS * HEAD_WIDTH), OUTPUTS),
            Tensor(f"{prefix}.mlp.gate.weight", (EXPERTS, HIDDEN), WEIGHTS),
        ]
        for expert in range(EXPERTS):
            module = f"{prefix}.mlp.experts.{expert}"
            made += [
                Tensor(f"{module}.gate_proj.weight", (INTERMEDIATE, HIDDEN), WEIGHTS),
                Tensor(f"{module}.up_proj.weight", (INTERMEDIATE, HIDDEN), WEIGHTS),
                Tensor(f"{module}.down_proj.weight", (HIDDEN, INTERMEDIATE), WEIGHTS),
            ]
    return [*made, Tensor("model.norm.weight", (HIDDEN,), None), Tensor("lm_head.weight", (VOCABULARY, HIDDEN), WEIGHTS)]


def shards(of: list[Tensor]) -> list[list[Tensor]]:
    """Consecutive runs of tensors, each as long as fits."""
    made: list[list[Tensor]] = [[]]
    size = 0
    for tensor in of:
        if made[-1] and size + tensor.bytes() > SHARD_BYTES:
            made.append([])
            size = 0
        made[-1].append(tensor)
        size += tensor.bytes()
    return made


def random_block(upper: tuple[int, int], seed: int) -> bytes:
    """bf16 numbers: an upper byte of the two at random, a lower byte of any value."""
    source = random.Random(seed)
    block = bytearray(BLOCK_BYTES)
    block[0::2] = source.randbytes(BLOCK_BYTES // 2)
    block[1::2] = source.randbytes(BLOCK_BYTES // 2).translate(bytes(upper) * 128)
    return bytes(block)


def write_shard(path: Path, of: list[Tensor], blocks: dict) -> None:
    header, at = {}, 0
    for tensor in of:
        header[tensor.name] = {"dtype": "BF16", "shape": tensor.shape, "data_offsets": [at, at + tensor.bytes()]}
        at += tensor.bytes()
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb", buffering=0) as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for index, tensor in enumerate(of):
            if tensor.upper is None:
                file.write(b"\x80\x3f" * (tensor.bytes() // 2))
                continue
            block, left = memoryview(blocks[tensor.upper]), tensor.bytes()
            begin = index * 7919 * 512 % (BLOCK_BYTES // 2)
            while left > 0:
                left -= file.write(block[begin : min(begin + left, BLOCK_BYTES)])
                begin = 0


def tokenizer() -> dict:
    """The 256 bytes, then as many made-up words as the vocabulary holds."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    shown = {byte: chr(byte) for byte in printable}
    for byte in range(256):
        shown.setdefault(byte, chr(256 + len(shown) - len(printable)))
    words = [shown[byte] for byte in range(256)] + [f"Ġw{number}" for number in range(256, VOCABULARY)]
    return {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False},
        "model": {"type": "BPE", "vocab": {word: index for index, word in enumerate(words)}, "merges": []},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--layers", type=int, default=48)
    parser.add_argument("--processes", type=int, default=min(16, os.cpu_count() or 1))
    options = parser.parse_args()
    start = time.monotonic()
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "config.json").write_text(json.dumps(config(options.layers), indent=2) + "\n")
    (options.out / "tokenizer.json").write_text(json.dumps(tokenizer()))
    (options.out / "tokenizer_config.json").write_text("{}\n")

    parts = shards(tensors(options.layers))
    names = [f"model-{index + 1:05}-of-{len(parts):05}.safetensors" for index in range(len(parts))]
    blocks = {upper: random_block(upper, seed) for seed, upper in enumerate((WEIGHTS, EMBEDDINGS, OUTPUTS))}
    # Forked, so that all write from the same blocks.
    with multiprocessing.get_context("fork").Pool(options.processes, initializer=_share, initargs=(blocks,)) as pool:
        pool.starmap(_write, [(options.out / name, part) for name, part in zip(names, parts, strict=True)])
    index = {tensor.name: name for name, part in zip(names, parts, strict=True) for tensor in part}
    total = sum(tensor.bytes() for part in parts for tensor in part)
    text = json.dumps({"metadata": {"total_size": total}, "weight_map": index})
    (options.out / "model.safetensors.index.json").write_text(text)
    taken = time.monotonic() - start
    print(f"{total / 1e9:.1f} GB in {len(parts)} shards, {taken:.1f} s, {total / taken / 1e9:.1f} GB/s")
    return 0


_blocks: dict = {}


def _share(blocks: dict) -> None:
    _blocks.update(blocks)


def _write(path: Path, of: list[Tensor]) -> None:
    write_shard(path, of, _blocks)


if __name__ == "__main__":
    sys.exit(main())
