"""How a Linear's weight is stored: plain, as W4A16 or as FP8 blocks; and what the stored tensors mean."""

import math
from dataclasses import dataclass
from typing import Any

import torch

from .tensors import Recipe, filled
from .values import DEVIATION, MEAN

Range = tuple[int, int]


class Plain:
    """BF16, as it is."""

    def config(self) -> dict[str, Any]:
        return {}

    def linear(self, module: str, out: int, inner: int, deviation: float, ranges: tuple[Range, ...]) -> list[Recipe]:
        return [filled(f"{module}.weight", (out, inner), deviation, ranges=ranges)]

    def meaning(self, parts: dict[str, torch.Tensor]) -> torch.Tensor:
        return parts["weight"]


@dataclass(frozen=True)
class PackedInt4(Plain):
    """compressed-tensors pack-quantized, symmetric: codes from -8 to 7, all but those two as frequent."""

    group: int
    ignore: tuple[str, ...]

    def config(self) -> dict[str, Any]:
        weights = {
            "num_bits": 4,
            "type": "int",
            "symmetric": True,
            "strategy": "group",
            "group_size": self.group,
            "dynamic": False,
        }
        return {
            "quantization_config": {
                "quant_method": "compressed-tensors",
                "format": "pack-quantized",
                "quantization_status": "compressed",
                "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
                "ignore": list(self.ignore),
            }
        }

    def linear(self, module: str, out: int, inner: int, deviation: float, ranges: tuple[Range, ...]) -> list[Recipe]:
        step = deviation / math.sqrt(21.03)  # the codes' mean square
        return [
            Recipe(f"{module}.weight_packed", "I32", (out, inner // 8), ranges),
            filled(f"{module}.weight_scale", (out, inner // self.group), step / 8, step, ranges=ranges),
            Recipe(f"{module}.weight_shape", "I64", (2,), ranges, numbers=(out, inner)),
        ]

    def meaning(self, parts: dict[str, torch.Tensor]) -> torch.Tensor:
        """Element k of a row is the nibble at bit 4 (k % 8) of word k / 8, and 8 means zero."""
        rows, columns = parts["weight_shape"].tolist()
        nibbles = parts["weight_packed"][:, :, None] >> (4 * torch.arange(8, dtype=torch.int32)) & 15
        codes = (nibbles.view(rows, columns) - 8).float()
        return codes * parts["weight_scale"].float().repeat_interleave(self.group, dim=1)


@dataclass(frozen=True)
class Fp8Blocks(Plain):
    """FP8 codes over all of their range, and a float32 scale for each 128 x 128 of them."""

    side: int = 128

    def config(self) -> dict[str, Any]:
        return {
            "quantization_config": {
                "quant_method": "fp8",
                "fmt": "e4m3",
                "activation_scheme": "dynamic",
                "weight_block_size": [self.side, self.side],
            }
        }

    def linear(self, module: str, out: int, inner: int, deviation: float, ranges: tuple[Range, ...]) -> list[Recipe]:
        codes = 448 * DEVIATION / MEAN  # the widest whose largest is 448
        step = deviation / codes
        grid = (math.ceil(out / self.side), math.ceil(inner / self.side))
        return [
            filled(f"{module}.weight", (out, inner), codes, dtype="F8_E4M3", ranges=ranges),
            filled(f"{module}.weight_scale_inv", grid, step / 8, step, "F32", ranges),
        ]

    def meaning(self, parts: dict[str, torch.Tensor]) -> torch.Tensor:
        codes, scales = parts["weight"].float(), parts["weight_scale_inv"]
        rows, columns = (torch.arange(size) // self.side for size in codes.shape)
        return codes * scales[rows[:, None], columns[None, :]]
