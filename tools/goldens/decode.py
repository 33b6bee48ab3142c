"""Reads expert deltas back from a stored adapter, formula by formula as formats.md section 2 states them.

It shares nothing with the writers in conventions.py, so that a rewritten adapter is checked against its source.
"""

import json
import math
import re
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from .spec import ModelSpec, text_name

# (layer, gate | up | down, expert) -> scale * B @ A, float32 [out,in]
Deltas = dict[tuple[int, str, int], torch.Tensor]

PARTS = {"gate_proj": "gate", "w1": "gate", "up_proj": "up", "w3": "up", "down_proj": "down", "w2": "down"}

_EXPERT_SIDE = re.compile(r".*\.layers\.(\d+)\.(?:mlp|block_sparse_moe)\.(experts.*)\.lora_([AB])\.weight")


def _pattern(patterns: dict[str, Any], name: str, default: Any) -> Any:
    return next((value for key, value in patterns.items() if re.match(rf"^(.*\.)?({key})$", name)), default)


def _scale(config: dict[str, Any], name: str, rank: int) -> float:
    stated = _pattern(config.get("rank_pattern") or {}, name, config["r"])
    if stated != rank:
        raise AssertionError(f"{name}: rank {rank} in the file, {stated} in the config")
    alpha = _pattern(config.get("alpha_pattern") or {}, name, config["lora_alpha"])
    return alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)


def _shapes(spec: ModelSpec) -> dict[str, tuple[int, int]]:
    """(out, in) of the fused projections."""
    hidden = spec.config["hidden_size"]
    return {"gate_up": (2 * spec.inner, hidden), "down": (hidden, spec.inner)}


def _halves(spec: ModelSpec, gate_up: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The gate and up rows of [out,in]."""
    if spec.family == "gpt_oss":
        return gate_up[0::2], gate_up[1::2]
    half = gate_up.shape[0] // 2
    return gate_up[:half], gate_up[half:]


def deltas(spec: ModelSpec, folder: Path, load: dict[str, str]) -> Deltas:
    config = json.loads((folder / "adapter_config.json").read_text())
    sides: dict[tuple[int, str], dict[str, torch.Tensor]] = {}
    for name, tensor in load_file(folder / "adapter_model.safetensors").items():
        match = _EXPERT_SIDE.fullmatch(name)
        if match:
            layer, leaf, side = int(match[1]), match[2], match[3]
            sides.setdefault((layer, leaf), {})[side] = tensor.float()
    found: Deltas = {}
    flat = {key: pair for key, pair in sides.items() if key[1] in ("experts", "experts.base_layer")}
    if flat:
        _flat(spec, config, load, flat, found)
    else:
        _spelled_out(spec, config, sides, found)
    return {key: value for key, value in found.items() if value.any()}


def _flat(spec: ModelSpec, config: dict[str, Any], load: dict[str, str], sides: dict, found: Deltas) -> None:
    """2.2 to 2.5 and 2.7: 2-D tensors for all experts."""
    shapes, e_count = _shapes(spec), spec.experts
    nested = any(leaf == "experts.base_layer" for _, leaf in sides)
    only = str(config["target_parameters"][0]).rsplit(".", 1)[-1].removesuffix("_proj")
    named = {
        (layer, ("gate_up" if leaf == "experts.base_layer" else "down") if nested else only): pair
        for (layer, leaf), pair in sides.items()
    }
    swapped = _is_swapped(spec, config, load, named, shapes)
    grouped = config.get("lora_B_layout") == "grouped_by_expert" or load.get("b-columns") == "expert-major"
    for (layer, projection), pair in named.items():
        a, b = pair["A"], pair["B"]
        rank = a.shape[0] // e_count
        scale = _scale(config, f"model.layers.{layer}.mlp.experts.{projection}_proj", rank)
        for e in range(e_count):
            rows = [e * rank + k for k in range(rank)]
            columns = rows if grouped else [k * e_count + e for k in range(rank)]
            delta = scale * b[:, columns] @ a[rows]
            _put(spec, found, layer, projection, e, delta.T if swapped else delta)


def _is_swapped(spec: ModelSpec, config: dict, load: dict, named: dict, shapes: dict) -> bool:
    """2.3: by the shapes of any projection that is not square, else by what the file says, else by PEFT's version."""
    for (_, projection), pair in named.items():
        out_size, in_size = shapes[projection]
        if out_size != in_size:
            return (pair["A"].shape[1], pair["B"].shape[0]) == (out_size, in_size)
    if "orientation" in load:
        return load["orientation"] == "swapped"
    version = tuple(int(part) for part in config["peft_version"].split(".")[:3])
    return version == (0, 19, 0) or (version < (0, 19, 0) and spec.family != "gpt_oss")


def _put(spec: ModelSpec, found: Deltas, layer: int, projection: str, e: int, delta: torch.Tensor) -> None:
    if projection == "gate_up":
        found[layer, "gate", e], found[layer, "up", e] = _halves(spec, delta)
    else:
        found[layer, "down", e] = delta


def _spelled_out(spec: ModelSpec, config: dict[str, Any], sides: dict, found: Deltas) -> None:
    """2.1, 2.5 (Unsloth's Linears) and 2.6: a tensor per expert, or 3-D, or one side each."""
    for layer in {layer for layer, _ in sides}:
        leaves = {leaf.removeprefix("experts."): pair for (at, leaf), pair in sides.items() if at == layer}
        for e in range(spec.experts):
            for leaf, part in PARTS.items():
                own, shared = leaves.get(f"{e}.{leaf}", {}), leaves.get(leaf, {})
                a, b = ({**_of_expert(shared, e), **own}.get(side) for side in ("A", "B"))
                if a is not None and b is not None:
                    name = f"model.layers.{layer}.mlp.experts.{e}.{leaf}"
                    found[layer, part, e] = _scale(config, name, a.shape[0]) * b @ a
            _fused_leaf(spec, config, leaves, layer, e, found)


def _fused_leaf(spec: ModelSpec, config: dict, leaves: dict, layer: int, e: int, found: Deltas) -> None:
    if "gate_up_proj" in leaves:  # SGLang: A holds gate's ranks then up's, B gate's rows then up's
        pair = _of_expert(leaves["gate_up_proj"], e)
        a, b = pair["A"], pair["B"]
        rank, inner = a.shape[0] // 2, b.shape[0] // 2
        scale = _scale(config, f"model.layers.{layer}.mlp.experts.gate_up_proj", rank)
        found[layer, "gate", e] = scale * b[:inner] @ a[:rank]
        found[layer, "up", e] = scale * b[inner:] @ a[rank:]
    for leaf, projection in (("gate_up_projs", "gate_up"), ("down_projs", "down")):
        pair = leaves.get(f"{leaf}.{e}")
        if pair:
            name = f"model.layers.{layer}.mlp.experts.{leaf}.{e}"
            _put(spec, found, layer, projection, e, _scale(config, name, pair["A"].shape[0]) * pair["B"] @ pair["A"])


def _of_expert(stacks: dict[str, torch.Tensor], e: int) -> dict[str, torch.Tensor]:
    """3-D tensors with one expert serve all."""
    return {side: stack[0 if stack.shape[0] == 1 else e] for side, stack in stacks.items()}


def disagreement(a: Deltas, b: Deltas) -> float:
    """The largest difference; infinite if they adapt different experts."""
    if a.keys() != b.keys():
        return float("inf")
    return max(((a[key] - b[key]).abs().max().item() for key in a), default=0.0)


def plain_tensors(folder: Path) -> dict[str, torch.Tensor]:
    """All that is not of experts, by the text model's names."""
    tensors = load_file(folder / "adapter_model.safetensors")
    return {text_name(name): tensor for name, tensor in tensors.items() if not _EXPERT_SIDE.fullmatch(name)}
