"""Checkpoints in quantised formats, and the plain weights that they mean.

The packing is not motley's: compressed-tensors packs and matches its own format, torch rounds to 8-bit floats. What a
stored weight means is read back from the stored tensors by the formulas of formats.md 4.1 and 4.4, in float32.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from compressed_tensors.compressors.pack_quantized import PackedQuantizationCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationConfig, QuantizationScheme
from compressed_tensors.utils import is_match, match_targets
from safetensors.torch import load_file, save_file
from torch import nn

Parts = dict[str, torch.Tensor]

WEIGHTS = "model.safetensors"

# Every weight matrix of a model but its embedding is a Linear's; names and class are all that is matched.
_LINEAR = nn.Linear(1, 1)


@dataclass(frozen=True)
class PackedInt4:
    """compressed-tensors pack-quantized, 4 bits, symmetric."""

    groups: tuple[tuple[str, int], ...]  # (target, group size)
    ignore: tuple[str, ...]
    scales: torch.dtype = torch.bfloat16
    shapes: torch.dtype = torch.int64

    def config(self) -> dict[str, Any]:
        schemes = {f"group_{i}": _scheme(target, size) for i, (target, size) in enumerate(self.groups)}
        return QuantizationConfig(
            config_groups=schemes,
            ignore=list(self.ignore),
            format="pack-quantized",
            quantization_status="compressed",
        ).to_dict()

    def pack(self, module: str, weight: torch.Tensor) -> Parts | None:
        """The tensors that stand for a weight; None where it stays plain."""
        if is_match(module, _LINEAR, self.ignore):
            return None
        target = next(iter(match_targets(module, _LINEAR, [target for target, _ in self.groups])), None)
        if target is None:
            return None
        size = dict(self.groups)[target]
        largest = weight.view(weight.shape[0], -1, size).abs().amax(-1)
        # Divided by 7.5, so that both -8 and 7 are met.
        parts = {"weight": weight, "weight_scale": (largest / 7.5).to(self.scales)}
        packed = PackedQuantizationCompressor.compress(parts, _scheme(target, size))
        packed["weight_shape"] = packed["weight_shape"].to(self.shapes)
        return packed

    def meaning(self, parts: Parts) -> torch.Tensor:
        """Element k of a row is the nibble at bit 4 (k % 8) of word k / 8, and 8 means zero."""
        rows, columns = parts["weight_shape"].tolist()
        scales = parts["weight_scale"].float()
        nibbles = parts["weight_packed"][:, :, None] >> (4 * torch.arange(8)) & 15
        codes = nibbles.reshape(rows, -1)[:, :columns] - 8
        return codes.float() * scales.repeat_interleave(columns // scales.shape[1], dim=1)


def _scheme(target: str, group_size: int) -> QuantizationScheme:
    weights = QuantizationArgs(num_bits=4, type="int", symmetric=True, strategy="group", group_size=group_size)
    return QuantizationScheme(targets=[target], weights=weights)


@dataclass(frozen=True)
class Fp8Blocks:
    """FP8 with a `weight_scale_inv` for each block of weights."""

    block: tuple[int, int] = (128, 128)
    scales: torch.dtype = torch.float32
    plain: tuple[str, ...] = ("lm_head", ".mlp.gate")  # the ends of the names of modules that are not converted
    listed: tuple[str, ...] | None = None  # modules_to_not_convert; DeepSeek's files have no such list

    def config(self) -> dict[str, Any]:
        config = {
            "quant_method": "fp8",
            "fmt": "e4m3",
            "activation_scheme": "dynamic",
            "weight_block_size": list(self.block),
        }
        return config | ({"modules_to_not_convert": list(self.listed)} if self.listed else {})

    def pack(self, module: str, weight: torch.Tensor) -> Parts | None:
        if module.endswith(self.plain):
            return None
        rows, columns = self.block
        grid = [math.ceil(weight.shape[0] / rows), math.ceil(weight.shape[1] / columns)]
        scales = torch.empty(grid)
        for i in range(grid[0]):
            for j in range(grid[1]):
                block = weight[i * rows : (i + 1) * rows, j * columns : (j + 1) * columns]
                scales[i, j] = block.abs().max() / 448
        scales = scales.to(self.scales)
        codes = (weight / self._spread(scales, weight.shape)).clamp(-448, 448).to(torch.float8_e4m3fn)
        return {"weight": codes, "weight_scale_inv": scales}

    def meaning(self, parts: Parts) -> torch.Tensor:
        """Code times its block's scale; the blocks at the edges are partial."""
        return parts["weight"].float() * self._spread(parts["weight_scale_inv"], parts["weight"].shape)

    def _spread(self, scales: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        rows, columns = torch.arange(shape[0]) // self.block[0], torch.arange(shape[1]) // self.block[1]
        return scales.float()[rows[:, None], columns[None, :]]


Scheme = PackedInt4 | Fp8Blocks


def store(scheme: Scheme, plain: Path, folder: Path) -> None:
    """Writes the checkpoint of `plain` quantised into `folder`; `plain` becomes what that means."""
    stored: Parts = {}
    meant: Parts = {}
    for name, tensor in load_file(plain / WEIGHTS).items():
        module = name.removesuffix(".weight")
        linear = tensor.dim() == 2 and not module.endswith("embed_tokens")
        parts = scheme.pack(module, tensor.float()) if linear else None
        if parts is None:
            stored[name] = meant[name] = tensor
            continue
        stored |= {f"{module}.{part}": value for part, value in parts.items()}
        meant[name] = scheme.meaning(parts)
        if isinstance(scheme, PackedInt4):
            compare_with_library(module, parts, meant[name])
    save_file(meant, plain / WEIGHTS, metadata={"format": "pt"})
    save_file(dict(sorted(stored.items())), folder / WEIGHTS, metadata={"format": "pt"})
    config = json.loads((plain / "config.json").read_text()) | {"quantization_config": scheme.config()}
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    (folder / "generation_config.json").write_bytes((plain / "generation_config.json").read_bytes())


def compare_with_library(module: str, parts: Parts, meaning: torch.Tensor) -> None:
    """compressed-tensors rounds what it decodes to the type of the scales: float32 ones round nothing."""
    size = meaning.shape[1] // parts["weight_scale"].shape[1]
    decoded = PackedQuantizationCompressor.decompress(
        parts | {"weight_scale": parts["weight_scale"].float()}, _scheme("Linear", size)
    )
    if not torch.equal(decoded["weight"], meaning):
        raise AssertionError(f"{module}: compressed-tensors decodes other weights")
