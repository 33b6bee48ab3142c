"""fp8: blocks as DeepSeek and Qwen store them, or one scale for a tensor, as Mistral does. Rounded by torch."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from .floats import E4M3_MAX, to_e4m3
from .scheme import Parts, Rounding, Scheme, largest_of_blocks, spread_blocks


@dataclass(frozen=True, kw_only=True)
class _Fp8(Scheme):
    method: ClassVar[str] = "fp8"

    plain: tuple[str, ...] = ("lm_head", ".mlp.gate")  # the ends of the names of modules that are not converted
    listed: tuple[str, ...] | None = None  # modules_to_not_convert; DeepSeek's files have no such list

    def config(self) -> dict[str, Any]:
        config = {"quant_method": "fp8", "fmt": "e4m3"} | self._scales()
        return config | ({"modules_to_not_convert": list(self.listed)} if self.listed else {})

    def _scales(self) -> dict[str, Any]:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Fp8Blocks(_Fp8):
    """A `weight_scale_inv` for each block of weights."""

    block: tuple[int, int] = (128, 128)
    scales: torch.dtype = torch.float32
    powers_of_two: bool = False

    def _scales(self) -> dict[str, Any]:
        config = {"activation_scheme": "dynamic", "weight_block_size": list(self.block)}
        return config | ({"scale_fmt": "ue8m0"} if self.powers_of_two else {})

    def pack(self, module: str, weight: torch.Tensor) -> Parts | None:
        if module.endswith(self.plain):
            return None
        scales = (largest_of_blocks(weight, self.block) / E4M3_MAX).to(self.scales)
        if self.powers_of_two:
            scales = torch.exp2(torch.ceil(torch.log2(scales)))
        codes = to_e4m3(weight / spread_blocks(scales, weight.shape, self.block))
        return {"weight": codes, "weight_scale_inv": scales}

    def meaning(self, module: str, parts: Parts) -> torch.Tensor:
        """Code times its block's scale."""
        codes = parts["weight"]
        return codes.float() * spread_blocks(parts["weight_scale_inv"], codes.shape, self.block)

    def rounding(self, module: str, parts: Parts) -> Rounding | None:
        return Rounding("row_block", integers=False, columns=self.block[1], power_of_two=self.powers_of_two)


@dataclass(frozen=True, kw_only=True)
class Fp8Tensors(_Fp8):
    """A scale for a tensor, and one for its inputs."""

    def _scales(self) -> dict[str, Any]:
        return {"activation_scheme": "static", "weight_block_size": None}

    @property
    def static_inputs(self) -> bool:
        return True

    def pack(self, module: str, weight: torch.Tensor) -> Parts | None:
        if module.endswith(self.plain):
            return None
        scale = weight.abs().max() / E4M3_MAX
        return {"weight": to_e4m3(weight / scale), "weight_scale_inv": scale}

    def meaning(self, module: str, parts: Parts) -> torch.Tensor:
        return parts["weight"].float() * parts["weight_scale_inv"]

    def input_parts(self, module: str, low: float, high: float) -> Parts:
        return {"activation_scale": torch.tensor(max(-low, high) / E4M3_MAX)}

    def rounding(self, module: str, parts: Parts) -> Rounding | None:
        return Rounding("fixed", integers=False, scale=float(parts["activation_scale"]))
