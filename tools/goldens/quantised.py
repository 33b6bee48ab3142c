"""Writes a checkpoint quantised, and the plain one that it means."""

import json
import re
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from .methods.scheme import Parts, Rounding, Scheme
from .spec import ModelSpec

WEIGHTS = "model.safetensors"

# The lowest and the highest input of a module.
Range = tuple[float, float]

_LEAVES = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}


def common_name(module: str) -> str:
    """Mixtral's modules by the names of other families."""
    module = module.replace(".block_sparse_moe.", ".mlp.")
    return re.sub(r"(\.experts\.\d+\.)(w[123])$", lambda match: match[1] + _LEAVES[match[2]], module)


def store(scheme: Scheme, spec: ModelSpec, plain: Path, folder: Path, ranges: dict[str, Range]) -> dict[str, Rounding]:
    """Writes the checkpoint of `plain` quantised into `folder`; `plain` becomes what that means.

    `ranges` are of modules' inputs, where the scheme has static ones. Answers with how inputs are rounded; both by
    common names.
    """
    stored: Parts = {}
    meant: Parts = {}
    roundings: dict[str, Rounding] = {}
    tensors = load_file(plain / WEIGHTS)
    for name, tensor in (_apart(tensors) if spec.quantised_apart else tensors).items():
        module = name.removesuffix(".weight")
        parts = scheme.pack(module, tensor.float()) if scheme.takes(name, tensor) else None
        if parts is None:
            stored[scheme.renamed(name)] = meant[name] = tensor
            continue
        if scheme.static_inputs:
            parts |= scheme.input_parts(module, *ranges[common_name(module)])
        meant[name] = scheme.meaning(module, parts).contiguous()
        scheme.compare_with_library(module, parts, meant[name])
        stored |= {
            scheme.renamed(scheme.stored_name(module, part)): value.contiguous() for part, value in parts.items()
        }
        rounding = scheme.rounding(module, parts)
        if rounding is not None:
            roundings[common_name(module)] = rounding
    save_file(_together(meant) if spec.quantised_apart else meant, plain / WEIGHTS, metadata={"format": "pt"})
    save_file(dict(sorted(stored.items())), folder / WEIGHTS, metadata={"format": "pt"})
    _write_configs(scheme, plain, folder, spec.quantised_in_text)
    return roundings


def _apart(tensors: Parts) -> Parts:
    """Fused experts [E, out, in], gate above up, one by one."""
    single: Parts = {}
    for name, tensor in tensors.items():
        path, found, projection = name.partition(".mlp.experts.")
        halves = {"gate_up_proj": ("gate_proj", "up_proj"), "down_proj": ("down_proj",)}
        if not found:
            single[name] = tensor
            continue
        for e, expert in enumerate(tensor):
            for leaf, part in zip(halves[projection], expert.chunk(len(halves[projection])), strict=True):
                single[f"{path}.mlp.experts.{e}.{leaf}.weight"] = part.contiguous()
    return single


def _together(tensors: Parts) -> Parts:
    """The same, fused again."""
    fused = {name: tensor for name, tensor in tensors.items() if ".mlp.experts." not in name}
    for name, tensor in tensors.items():
        path, found, leaf = name.partition(".mlp.experts.0.")
        if not found or leaf == "up_proj.weight":
            continue
        count = sum(f"{path}.mlp.experts.{e}.{leaf}" in tensors for e in range(len(tensors)))
        experts = [tensors[f"{path}.mlp.experts.{e}.{leaf}"] for e in range(count)]
        if leaf == "gate_proj.weight":
            ups = [tensors[f"{path}.mlp.experts.{e}.up_proj.weight"] for e in range(count)]
            experts = [torch.cat(both) for both in zip(experts, ups, strict=True)]
        projection = "gate_up_proj" if leaf == "gate_proj.weight" else "down_proj"
        fused[f"{path}.mlp.experts.{projection}"] = torch.stack(experts)
    return fused


def _write_configs(scheme: Scheme, plain: Path, folder: Path, in_text: bool) -> None:
    config = json.loads((plain / "config.json").read_text())
    documents = scheme.documents()
    for name, document in documents.items():
        (folder / name).write_text(json.dumps(document, indent=2) + "\n")
    if not documents:
        (config["text_config"] if in_text else config)["quantization_config"] = scheme.config()
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    (folder / "generation_config.json").write_bytes((plain / "generation_config.json").read_bytes())
