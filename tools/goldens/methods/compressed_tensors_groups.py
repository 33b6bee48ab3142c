"""compressed-tensors' small floats in groups: NVFP4, MXFP4 and MXFP8. Inputs, which the files want small too, stay."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
from compressed_tensors.quantization import QuantizationArgs
from compressed_tensors.quantization.lifecycle.forward import dequantize

from . import floats
from .compressed_tensors import CompressedTensors, require_equal
from .scheme import Parts, per_group, spread


@dataclass(frozen=True, kw_only=True)
class NvFp4(CompressedTensors):
    """nvfp4-pack-quantized: a scale in FP8 for 16 inputs, and a number of the whole weight that divides it."""

    GROUP: ClassVar[int] = 16

    @property
    def format(self) -> str:
        return "nvfp4-pack-quantized"

    def weights(self) -> QuantizationArgs:
        return QuantizationArgs(num_bits=4, type="float", strategy="tensor_group", group_size=self.GROUP)

    def inputs(self) -> QuantizationArgs:
        return QuantizationArgs(
            num_bits=4, type="float", strategy="tensor_group", group_size=self.GROUP, dynamic="local"
        )

    def pack(self, module: str, weight: torch.Tensor) -> Parts | None:
        scheme = self.scheme_of(module)
        if scheme is None:
            return None
        number = floats.E4M3_MAX * floats.E2M1_MAX / weight.abs().max()
        largest = per_group(weight, self.GROUP).abs().amax(-1)
        scales = floats.to_e4m3(largest / floats.E2M1_MAX * number)
        parts = {"weight": weight, "weight_scale": scales.float(), "weight_global_scale": number.view(1)}
        # Of inputs of 4 bits, which stay as they are.
        return self.compressed(parts, scheme) | {"input_global_scale": number.view(1) / 3}

    def meaning(self, module: str, parts: Parts) -> torch.Tensor:
        values = floats.unpack_e2m1(parts["weight_packed"])
        scales = parts["weight_scale"].float() / parts["weight_global_scale"]
        return values * spread(scales, values.shape[1])

    def compare_with_library(self, module: str, parts: Parts, meaning: torch.Tensor) -> None:
        """decompress() goes through bf16; the steps that it takes do not."""
        rows, pairs = parts["weight_packed"].shape
        decoded = dequantize(
            x_q=unpack_fp4_from_uint8(parts["weight_packed"], rows, 2 * pairs, torch.float32),
            scale=parts["weight_scale"].float(),
            args=self.weights(),
            global_scale=parts["weight_global_scale"],
        )
        require_equal(module, decoded, meaning)


@dataclass(frozen=True, kw_only=True)
class _PowersOfTwo(CompressedTensors):
    """A scale of a byte, 2^(byte - 127), for 32 numbers. bf16 holds what that decodes to."""

    GROUP: ClassVar[int] = 32

    bits: ClassVar[int]
    emax: ClassVar[int]  # the exponent of the type's largest number

    def weights(self) -> QuantizationArgs:
        return self._arguments(dynamic=False)

    def inputs(self) -> QuantizationArgs:
        return self._arguments(dynamic=True)

    def _arguments(self, dynamic: bool) -> QuantizationArgs:
        return QuantizationArgs(
            num_bits=self.bits,
            type="float",
            strategy="group",
            group_size=self.GROUP,
            scale_dtype=torch.uint8,
            dynamic=dynamic,
        )

    def pack(self, module: str, weight: torch.Tensor) -> Parts | None:
        scheme = self.scheme_of(module)
        if scheme is None:
            return None
        exponents = floats.exponent_of(per_group(weight, self.GROUP).abs().amax(-1), self.emax)
        return self.compressed({"weight": weight, "weight_scale": torch.exp2(exponents)}, scheme)

    def _exact(self, parts: Parts) -> Parts:
        return parts


@dataclass(frozen=True, kw_only=True)
class MxFp4(_PowersOfTwo):
    """mxfp4-pack-quantized."""

    bits: ClassVar[int] = 4
    emax: ClassVar[int] = 2

    @property
    def format(self) -> str:
        return "mxfp4-pack-quantized"

    def meaning(self, module: str, parts: Parts) -> torch.Tensor:
        values = floats.unpack_e2m1(parts["weight_packed"])
        return values * spread(floats.power(parts["weight_scale"]), values.shape[1])


@dataclass(frozen=True, kw_only=True)
class MxFp8(_PowersOfTwo):
    """mxfp8-quantized."""

    bits: ClassVar[int] = 8
    emax: ClassVar[int] = 8

    @property
    def format(self) -> str:
        return "mxfp8-quantized"

    def meaning(self, module: str, parts: Parts) -> torch.Tensor:
        values = parts["weight"].float()
        return values * spread(floats.power(parts["weight_scale"]), values.shape[1])
