#!/usr/bin/env python3
"""Writes a checkpoint in the shape of Qwen3-30B-A3B with random weights, for measuring how long loading takes.

    python3 tools/make_checkpoint.py OUT [--layers 48] [--processes 16] [--format bf16|w4a16|gptq|gptq-desc-act|awq|fp8]

57 GB with all layers in bf16, in shards of 4 GB, with the index, a config and a tokenizer of 151,936 entries. In the other
formats all linear maps but the router and the head are quantised, in groups of 128. Every shard repeats random blocks, so
that writing is as fast as the disk; numbers have the sizes that trained weights have. The files are in the page cache when
it is done, as far as memory allows. Needs nothing but Python.
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
from functools import partial
from pathlib import Path

HIDDEN, INTERMEDIATE, EXPERTS, VOCABULARY = 2048, 768, 128, 151936
HEADS, KV_HEADS, HEAD_WIDTH = 32, 4, 128
SHARD_BYTES = 4 << 30
BLOCK_BYTES = 64 << 20

GROUP = 128

# What fills a tensor: the upper bytes of its 16-bit numbers, by either sign, or the bytes of its codes.
WEIGHTS = (0x3C, 0xBC)  # bf16 from 0.008 to 0.03
EMBEDDINGS = (0x3F, 0xBF)  # 0.5 to 2
OUTPUTS = (0x3A, 0xBA)  # 0.0005 to 0.002: attention's output, see src/model/weights/random_weights.h
SCALES = (0x3B, 0x3B)  # bf16 from 0.002 to 0.004
HALF_SCALES = (0x18, 0x18)  # the same in f16
CODES = "codes"  # any
FP8_CODES = "fp8 codes"  # 0.0625 to 0.12
FILLS = (WEIGHTS, EMBEDDINGS, OUTPUTS, SCALES, HALF_SCALES, CODES, FP8_CODES)

BYTES = {"BF16": 2, "F16": 2, "F32": 4, "I32": 4, "I64": 8, "F8_E4M3": 1}


@dataclass(frozen=True)
class Tensor:
    name: str
    shape: tuple[int, ...]
    fill: tuple[int, int] | str | bytes  # bytes: repeated
    dtype: str = "BF16"

    def bytes(self) -> int:
        count = BYTES[self.dtype]
        for size in self.shape:
            count *= size
        return count


ONES = b"\x80\x3f"  # in bf16


def bf16_map(module: str, out: int, columns: int, fill: tuple[int, int]) -> list[Tensor]:
    return [Tensor(f"{module}.weight", (out, columns), fill)]


def w4a16_map(module: str, out: int, columns: int, _fill: tuple[int, int]) -> list[Tensor]:
    return [
        Tensor(f"{module}.weight_packed", (out, columns // 8), CODES, "I32"),
        Tensor(f"{module}.weight_scale", (out, columns // GROUP), SCALES),
        Tensor(f"{module}.weight_shape", (2,), struct.pack("<qq", out, columns), "I64"),
    ]


def gptq_map(
    module: str, out: int, columns: int, _fill: tuple[int, int], desc_act: bool = False
) -> list[Tensor]:
    groups = [column // GROUP for column in range(columns)]
    if desc_act:
        # Maps that share their inputs share the order.
        random.Random(f"{module.rpartition('.')[0]} {columns}").shuffle(groups)
    return [
        Tensor(f"{module}.qweight", (columns // 8, out), CODES, "I32"),
        Tensor(f"{module}.qzeros", (columns // GROUP, out // 8), b"\x77", "I32"),
        Tensor(f"{module}.scales", (columns // GROUP, out), HALF_SCALES, "F16"),
        Tensor(f"{module}.g_idx", (columns,), struct.pack(f"<{columns}i", *groups), "I32"),
    ]


def awq_map(module: str, out: int, columns: int, _fill: tuple[int, int]) -> list[Tensor]:
    return [
        Tensor(f"{module}.qweight", (columns, out // 8), CODES, "I32"),
        Tensor(f"{module}.qzeros", (columns // GROUP, out // 8), CODES, "I32"),
        Tensor(f"{module}.scales", (columns // GROUP, out), HALF_SCALES, "F16"),
    ]


def fp8_map(module: str, out: int, columns: int, _fill: tuple[int, int]) -> list[Tensor]:
    return [
        Tensor(f"{module}.weight", (out, columns), FP8_CODES, "F8_E4M3"),
        Tensor(f"{module}.weight_scale_inv", (out // GROUP, columns // GROUP), struct.pack("<f", 0.2), "F32"),
    ]


MAPS = {
    "bf16": bf16_map,
    "w4a16": w4a16_map,
    "gptq": gptq_map,
    "gptq-desc-act": partial(gptq_map, desc_act=True),
    "awq": awq_map,
    "fp8": fp8_map,
}
QUANTISATION = {
    "w4a16": {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": GROUP},
            }
        },
        "ignore": ["lm_head", "re:.*mlp.gate$"],
    },
    "gptq": {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": False, "sym": True},
    "gptq-desc-act": {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": True, "sym": True},
    "awq": {
        "quant_method": "awq",
        "bits": 4,
        "group_size": GROUP,
        "zero_point": True,
        "version": "gemm",
        "modules_to_not_convert": ["gate"],
    },
    "fp8": {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [GROUP, GROUP]},
}


def config(layers: int, form: str) -> dict:
    made = {
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
    if form in QUANTISATION:
        made["quantization_config"] = QUANTISATION[form]
    return made


def tensors(layers: int, form: str) -> list[Tensor]:
    linear = MAPS[form]
    made = [Tensor("model.embed_tokens.weight", (VOCABULARY, HIDDEN), EMBEDDINGS)]
    for layer in range(layers):
        prefix = f"model.layers.{layer}"
        attention = f"{prefix}.self_attn"
        made += [
            Tensor(f"{prefix}.input_layernorm.weight", (HIDDEN,), ONES),
            Tensor(f"{prefix}.post_attention_layernorm.weight", (HIDDEN,), ONES),
            Tensor(f"{attention}.q_norm.weight", (HEAD_WIDTH,), ONES),
            Tensor(f"{attention}.k_norm.weight", (HEAD_WIDTH,), ONES),
            *linear(f"{attention}.q_proj", HEADS * HEAD_WIDTH, HIDDEN, WEIGHTS),
            *linear(f"{attention}.k_proj", KV_HEADS * HEAD_WIDTH, HIDDEN, WEIGHTS),
            *linear(f"{attention}.v_proj", KV_HEADS * HEAD_WIDTH, HIDDEN, WEIGHTS),
            *linear(f"{attention}.o_proj", HIDDEN, HEADS * HEAD_WIDTH, OUTPUTS),
            Tensor(f"{prefix}.mlp.gate.weight", (EXPERTS, HIDDEN), WEIGHTS),
        ]
        for expert in range(EXPERTS):
            module = f"{prefix}.mlp.experts.{expert}"
            made += [
                *linear(f"{module}.gate_proj", INTERMEDIATE, HIDDEN, WEIGHTS),
                *linear(f"{module}.up_proj", INTERMEDIATE, HIDDEN, WEIGHTS),
                *linear(f"{module}.down_proj", HIDDEN, INTERMEDIATE, WEIGHTS),
            ]
    return [*made, Tensor("model.norm.weight", (HIDDEN,), ONES), Tensor("lm_head.weight", (VOCABULARY, HIDDEN), WEIGHTS)]


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


def random_block(fill: tuple[int, int] | str, seed: int) -> bytes:
    source = random.Random(seed)
    if fill == CODES:
        return source.randbytes(BLOCK_BYTES)
    if fill == FP8_CODES:  # either sign, one exponent, any mantissa
        return source.randbytes(BLOCK_BYTES).translate(bytes(byte & 0x87 | 0x18 for byte in range(256)))
    block = bytearray(BLOCK_BYTES)
    block[0::2] = source.randbytes(BLOCK_BYTES // 2)
    block[1::2] = source.randbytes(BLOCK_BYTES // 2).translate(bytes(fill) * 128)
    return bytes(block)


def write_shard(path: Path, of: list[Tensor], blocks: dict) -> None:
    header, at = {}, 0
    for tensor in of:
        header[tensor.name] = {"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [at, at + tensor.bytes()]}
        at += tensor.bytes()
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb", buffering=0) as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for index, tensor in enumerate(of):
            if isinstance(tensor.fill, bytes):
                file.write(tensor.fill * (tensor.bytes() // len(tensor.fill)))
                continue
            block, left = memoryview(blocks[tensor.fill]), tensor.bytes()
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
    parser.add_argument("--format", choices=MAPS, default="bf16")
    options = parser.parse_args()
    start = time.monotonic()
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "config.json").write_text(json.dumps(config(options.layers, options.format), indent=2) + "\n")
    (options.out / "tokenizer.json").write_text(json.dumps(tokenizer()))
    (options.out / "tokenizer_config.json").write_text("{}\n")

    parts = shards(tensors(options.layers, options.format))
    names = [f"model-{index + 1:05}-of-{len(parts):05}.safetensors" for index in range(len(parts))]
    blocks = {fill: random_block(fill, seed) for seed, fill in enumerate(FILLS)}
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
