"""How weights are stored: plain, or in a quantised format. Recipes for the stored tensors are here; what those mean is
read by tools/goldens/methods, formula by formula."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from goldens.methods.awq import Awq
from goldens.methods.compressed_tensors import PackedIntegers
from goldens.methods.compressed_tensors_groups import MxFp8
from goldens.methods.compressed_tensors_scaled import ScaledFloats, ScaledIntegers
from goldens.methods.fp8 import Fp8Blocks
from goldens.methods.gptq import Gptq
from goldens.methods.modelopt import ModelOptNvFp4
from goldens.methods.mxfp4 import GptOssMxFp4
from goldens.methods.scheme import Parts, Rounding, Scheme

from .tensors import Recipe, filled
from .values import DEVIATION, MEAN

Range = tuple[int, int]

# The mean square of packed codes, less the middle.
_SQUARE_4_BITS = 21.03
_SQUARE_8_BITS = 256**2 / 12
# Of E2M1 numbers, each as frequent.
_SQUARE_E2M1 = 8.5625


class Plain:
    """BF16, as it is."""

    rounds_inputs = False

    def config(self) -> dict[str, Any]:
        return {}

    def linear(self, module: str, out: int, inner: int, deviation: float, ranges: tuple[Range, ...]) -> list[Recipe]:
        """Of a weight [out, in]."""
        return [filled(f"{module}.weight", (out, inner), deviation, ranges=ranges)]

    def fused(
        self, module: str, experts: int, inner: int, out: int, deviation: float, ranges: tuple[Range, ...]
    ) -> list[Recipe]:
        """Of experts [E, in, out]."""
        return [filled(module, (experts, inner, out), deviation, ranges=ranges)]

    def meaning(self, module: str, parts: Parts) -> tuple[str, torch.Tensor]:
        """The plain tensor that a module's stored ones stand for: its name, and what it is in float32."""
        raise NotImplementedError

    def rounding(self, module: str, parts: Parts) -> Rounding | None:
        """What happens to the module's inputs, where the golden asks for that."""
        return None


@dataclass(frozen=True)
class Quantised(Plain):
    """Every Linear but the head and routers."""

    scheme: Scheme
    rounds_inputs: bool = False  # as the file says; without, they stay as they are

    def config(self) -> dict[str, Any]:
        return {"quantization_config": self.scheme.config()}

    def linear(self, module: str, out: int, inner: int, deviation: float, ranges: tuple[Range, ...]) -> list[Recipe]:
        return self._named(module, self.parts(module, out, inner, deviation), ranges)

    def parts(self, module: str, out: int, inner: int, deviation: float) -> list[Recipe]:
        """The stored tensors by the format's own names, for numbers of that deviation."""
        raise NotImplementedError

    def _named(self, module: str, parts: list[Recipe], ranges: tuple[Range, ...]) -> list[Recipe]:
        return [
            replace(each, name=self.scheme.stored_name(module, each.name), ranges=ranges, module=module, part=each.name)
            for each in parts
        ]

    def meaning(self, module: str, parts: Parts) -> tuple[str, torch.Tensor]:
        meaning = self.scheme.meaning(module, parts)
        self.scheme.compare_with_library(module, parts, meaning)
        return f"{module}.weight", meaning.contiguous()

    def rounding(self, module: str, parts: Parts) -> Rounding | None:
        return self.scheme.rounding(module, parts) if self.rounds_inputs else None


def _around(name: str, shape: Iterable[int], mean: float, dtype: str = "BF16") -> Recipe:
    """Positive numbers: scales."""
    return filled(name, tuple(shape), mean / 8, mean, dtype)


def _spread_over(name: str, shape: Iterable[int], largest: int, dtype: str) -> tuple[Recipe, float]:
    """Codes over all of their range, and their deviation."""
    deviation = largest * DEVIATION / MEAN
    return filled(name, tuple(shape), deviation, dtype=dtype), deviation


def _powers(name: str, shape: Iterable[int], mean: float) -> Recipe:
    """Bytes that mean powers of two; the square of what they mean is mean^2 on average."""
    deviation = 0.6
    square = math.log(2) ** 2 * (deviation**2 + 1 / 12)  # of the logarithm, with what rounding adds
    exponent = math.log2(mean) - square / math.log(2)
    return filled(name, tuple(shape), deviation, 127 + exponent, "U8")


class PackedWords(Quantised):
    """compressed-tensors pack-quantized: a row is a stream of codes, the middle code means zero."""

    scheme: PackedIntegers

    def parts(self, module: str, out: int, inner: int, deviation: float) -> list[Recipe]:
        bits = self.scheme.bits
        step = deviation / math.sqrt(_SQUARE_4_BITS if bits == 4 else _SQUARE_8_BITS)
        arguments = self.scheme.scheme_of(module).weights
        group = arguments.group_size or inner
        return [
            Recipe("weight_packed", "I32", (out, inner * bits // 32), codes=bits),
            _around("weight_scale", (out, inner // group), step),
            Recipe("weight_shape", "I64", (2,), numbers=(out, inner)),
        ]


class PackedInt4(PackedWords):
    """Symmetric, in groups. The configuration is as files have it, without what is null."""

    def __init__(self, group: int) -> None:
        super().__init__(PackedIntegers(groups=(("Linear", group),)))

    def config(self) -> dict[str, Any]:
        weights = {
            "num_bits": 4,
            "type": "int",
            "symmetric": True,
            "strategy": "group",
            "group_size": self.scheme.groups[0][1],
            "dynamic": False,
        }
        return {
            "quantization_config": {
                "quant_method": "compressed-tensors",
                "format": "pack-quantized",
                "quantization_status": "compressed",
                "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
                "ignore": list(self.scheme.ignore),
            }
        }


class AwqWords(Quantised):
    """A word has codes of eight outputs. Zero points are all codes too."""

    scheme: Awq

    def parts(self, module: str, out: int, inner: int, deviation: float) -> list[Recipe]:
        groups, step = inner // self.scheme.group, deviation / math.sqrt(2 * _SQUARE_4_BITS)
        return [
            Recipe("qweight", "I32", (inner, out // 8), codes=4),
            Recipe("qzeros", "I32", (groups, out // 8), codes=4),
            _around("scales", (groups, out), step, "F16"),
        ]


class GptqWords(Quantised):
    """A word has codes of eight inputs, in activation order; the middle code means zero, and is stored less one."""

    scheme: Gptq

    def parts(self, module: str, out: int, inner: int, deviation: float) -> list[Recipe]:
        group = self.scheme.group
        return [
            Recipe("qweight", "I32", (inner // 8, out), codes=4),
            Recipe("qzeros", "I32", (inner // group, out // 8), numbers=(0x77777777,)),
            _around("scales", (inner // group, out), deviation / math.sqrt(_SQUARE_4_BITS), "F16"),
            Recipe("g_idx", "I32", (inner,), group=group),
        ]


class ScaledCodes(Quantised):
    """compressed-tensors' eight bits, with a scale for each row; inputs by token."""

    scheme: ScaledFloats | ScaledIntegers

    def parts(self, module: str, out: int, inner: int, deviation: float) -> list[Recipe]:
        largest, dtype = (448, "F8_E4M3") if isinstance(self.scheme, ScaledFloats) else (127, "I8")
        weight, codes = _spread_over("weight", (out, inner), largest, dtype)
        return [weight, _around("weight_scale", (out, 1), deviation / codes)]


class Fp8InBlocks(Quantised):
    """A float32 scale for each block."""

    scheme: Fp8Blocks

    def parts(self, module: str, out: int, inner: int, deviation: float) -> list[Recipe]:
        weight, codes = _spread_over("weight", (out, inner), 448, "F8_E4M3")
        grid = [math.ceil(size / side) for size, side in zip((out, inner), self.scheme.block, strict=True)]
        return [weight, _around("weight_scale_inv", grid, deviation / codes, "F32")]


class MxFp8Groups(Quantised):
    """A power of two for 32 numbers."""

    scheme: MxFp8

    def parts(self, module: str, out: int, inner: int, deviation: float) -> list[Recipe]:
        weight, codes = _spread_over("weight", (out, inner), 448, "F8_E4M3")
        return [weight, _powers("weight_scale", (out, inner // self.scheme.GROUP), deviation / codes)]


class NvFp4Groups(Quantised):
    """A scale in FP8 for 16 inputs, times a number of the whole weight."""

    scheme: ModelOptNvFp4

    def parts(self, module: str, out: int, inner: int, deviation: float) -> list[Recipe]:
        scale = 200.0
        number = deviation / math.sqrt(_SQUARE_E2M1) / scale
        return [
            Recipe("weight", "U8", (out, inner // 2), codes=8),
            _around("weight_scale", (out, inner // 16), scale, "F8_E4M3"),
            _around("weight_scale_2", (), number, "F32"),
            _around("input_scale", (), 0.01, "F32"),
        ]


class GptOssMxFp4Blocks(Quantised):
    """gpt-oss's experts in blocks of 32 inputs; all else is plain."""

    scheme: GptOssMxFp4

    def linear(self, module: str, out: int, inner: int, deviation: float, ranges: tuple[Range, ...]) -> list[Recipe]:
        return Plain().linear(module, out, inner, deviation, ranges)

    def fused(
        self, module: str, experts: int, inner: int, out: int, deviation: float, ranges: tuple[Range, ...]
    ) -> list[Recipe]:
        blocks = inner // self.scheme.GROUP
        parts = [
            Recipe("blocks", "U8", (experts, out, blocks, self.scheme.GROUP // 2), codes=8),
            _powers("scales", (experts, out, blocks), deviation / math.sqrt(_SQUARE_E2M1)),
        ]
        return self._named(module, parts, ranges)

    def meaning(self, module: str, parts: Parts) -> tuple[str, torch.Tensor]:
        return module, super().meaning(module, parts)[1]


# Those of qwen3_moe_few_experts, by the ends of the models' names.
FORMATS: dict[str, Plain] = {
    "w4a16_group_32": PackedInt4(32),
    # A scale for each row of attention, and for 128 inputs in the experts.
    "w8a16": PackedWords(PackedIntegers(bits=8, groups=(("re:.*self_attn.*", -1), ("Linear", 128)))),
    "awq": AwqWords(Awq(group=128)),
    "gptq_desc_act": GptqWords(Gptq(group=128, desc_act=True)),
    "nvfp4": NvFp4Groups(ModelOptNvFp4()),
    "mxfp8": MxFp8Groups(MxFp8()),
    "fp8_channel": ScaledCodes(ScaledFloats(scales=torch.bfloat16), rounds_inputs=True),
    "fp8_block": Fp8InBlocks(Fp8Blocks(listed=("lm_head",)), rounds_inputs=True),
    "w8a8": ScaledCodes(ScaledIntegers(scales=torch.bfloat16), rounds_inputs=True),
}
