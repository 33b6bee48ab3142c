"""compressed-tensors' eight bits: FP8 and INT8 as they are, with scales beside them."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from compressed_tensors.quantization import QuantizationArgs

from . import floats
from .compressed_tensors import CompressedTensors, ranges_of
from .scheme import Parts, Rounding, largest_of_blocks, spread_blocks


@dataclass(frozen=True, kw_only=True)
class _Scaled(CompressedTensors):
    """Eight bits as they are, with scales beside them, and inputs of eight bits."""

    strategy: str = "channel"  # or "tensor", "block"
    block: tuple[int, int] = (128, 128)
    input_group: int | None = None  # inputs that share a scale; without it a token's, or the file's
    static: bool = False  # inputs have a scale of the file
    scales: torch.dtype = torch.float32

    type: ClassVar[str]

    def weights(self) -> QuantizationArgs:
        block = list(self.block) if self.strategy == "block" else None
        return QuantizationArgs(
            num_bits=8,
            type=self.type,
            symmetric=self._weights_symmetric(),
            strategy=self.strategy,
            block_structure=block,
        )

    def _weights_symmetric(self) -> bool:
        return True

    def inputs(self) -> QuantizationArgs:
        if self.static:
            return QuantizationArgs(num_bits=8, type=self.type, symmetric=self._inputs_symmetric(), strategy="tensor")
        by: dict[str, Any] = (
            {"strategy": "group", "group_size": self.input_group} if self.input_group else {"strategy": "token"}
        )
        return QuantizationArgs(num_bits=8, type=self.type, dynamic=True, **by)

    def _inputs_symmetric(self) -> bool:
        return True

    @property
    def static_inputs(self) -> bool:
        return self.static

    def rounding(self, module: str, parts: Parts) -> Rounding | None:
        integers = self.type == "int"
        if self.static:
            zero = int(parts["input_zero_point"]) if "input_zero_point" in parts else 0
            return Rounding("fixed", integers, scale=float(parts["input_scale"]), zero=zero)
        if self.input_group:
            return Rounding("row_block", integers, columns=self.input_group)
        return Rounding("row", integers)

    def _spread(self, values: torch.Tensor, shape: torch.Size) -> torch.Tensor:
        if self.strategy == "block":
            return spread_blocks(values, shape, self.block)
        return values.float().view(-1, 1).expand(shape)


@dataclass(frozen=True, kw_only=True)
class ScaledFloats(_Scaled):
    """float-quantized: FP8."""

    type: ClassVar[str] = "float"

    @property
    def format(self) -> str:
        return "float-quantized"

    def pack(self, module: str, weight: torch.Tensor) -> Parts | None:
        scheme = self.scheme_of(module)
        if scheme is None:
            return None
        largest = {
            "tensor": lambda: weight.abs().max().view(1),
            "channel": lambda: weight.abs().amax(1, keepdim=True),
            "block": lambda: largest_of_blocks(weight, self.block),
        }[self.strategy]()
        scales = (largest / floats.E4M3_MAX).to(self.scales)
        return self.compressed({"weight": weight, "weight_scale": scales}, scheme)

    def meaning(self, module: str, parts: Parts) -> torch.Tensor:
        return parts["weight"].float() * self._spread(parts["weight_scale"], parts["weight"].shape)

    def input_parts(self, module: str, low: float, high: float) -> Parts:
        return {"input_scale": torch.tensor([max(-low, high) / floats.E4M3_MAX])}


@dataclass(frozen=True, kw_only=True)
class ScaledIntegers(_Scaled):
    """int-quantized: W8A8."""

    asymmetric: bool = False  # weights and static inputs

    type: ClassVar[str] = "int"

    @property
    def format(self) -> str:
        return "int-quantized"

    def _weights_symmetric(self) -> bool:
        return not self.asymmetric

    def _inputs_symmetric(self) -> bool:
        return not self.asymmetric

    def pack(self, module: str, weight: torch.Tensor) -> Parts | None:
        scheme = self.scheme_of(module)
        if scheme is None:
            return None
        numbers = weight.reshape(1, -1) if self.strategy == "tensor" else weight
        scales, zeros = ranges_of(numbers, 8, not self.asymmetric)
        shape = (-1,) if self.strategy == "tensor" else (-1, 1)
        parts = {"weight": weight, "weight_scale": scales.view(shape).to(self.scales)}
        if self.asymmetric:
            parts["weight_zero_point"] = zeros.view(shape).to(torch.int8)
        return self.compressed(parts, scheme)

    def meaning(self, module: str, parts: Parts) -> torch.Tensor:
        codes, shape = parts["weight"].float(), parts["weight"].shape
        if self.asymmetric:
            codes = codes - self._spread(parts["weight_zero_point"], shape)
        return codes * self._spread(parts["weight_scale"], shape)

    def input_parts(self, module: str, low: float, high: float) -> Parts:
        if not self.asymmetric:
            return {"input_scale": torch.tensor([max(-low, high) / 127])}
        scale = (high - low) / 255
        zero = round(-low / scale) - 128
        return {"input_scale": torch.tensor([scale]), "input_zero_point": torch.tensor([zero], dtype=torch.int8)}
