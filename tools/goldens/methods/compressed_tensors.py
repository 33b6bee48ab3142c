"""compressed-tensors, packed by its own library; integers in words. What a weight means is read back by formats.md 4.1."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from compressed_tensors.compressors.base import BaseCompressor
from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32
from compressed_tensors.quantization import QuantizationArgs, QuantizationConfig, QuantizationScheme
from compressed_tensors.utils import is_match, match_targets
from torch import nn

from .. import randoms
from . import words
from .scheme import Parts, Scheme, per_group

# Every weight matrix of a model but its embedding is a Linear's; names and class are all that is matched.
_LINEAR = nn.Linear(1, 1)

_ROUTERS_AND_HEAD = ("lm_head", "re:.*mlp.gate$")


@dataclass(frozen=True, kw_only=True)
class CompressedTensors(Scheme):
    method: ClassVar[str] = "compressed-tensors"

    ignore: tuple[str, ...] = _ROUTERS_AND_HEAD

    @property
    def format(self) -> str:
        raise NotImplementedError

    def schemes(self) -> dict[str, QuantizationScheme]:
        """By target."""
        return {
            "Linear": QuantizationScheme(targets=["Linear"], weights=self.weights(), input_activations=self.inputs())
        }

    def weights(self) -> QuantizationArgs:
        raise NotImplementedError

    def inputs(self) -> QuantizationArgs | None:
        return None

    def config(self) -> dict[str, Any]:
        groups = {f"group_{i}": scheme for i, scheme in enumerate(self.schemes().values())}
        return QuantizationConfig(
            config_groups=groups, ignore=list(self.ignore), format=self.format, quantization_status="compressed"
        ).to_dict()

    def scheme_of(self, module: str) -> QuantizationScheme | None:
        """By the library's own matching; None where the module stays plain."""
        if is_match(module, _LINEAR, self.ignore):
            return None
        schemes = self.schemes()
        target = next(iter(match_targets(module, _LINEAR, list(schemes))), None)
        return schemes[target] if target is not None else None

    def compressed(self, parts: Parts, scheme: QuantizationScheme) -> Parts:
        return BaseCompressor.get_value_from_registry(self.format).compress(parts, scheme)

    def compare_with_library(self, module: str, parts: Parts, meaning: torch.Tensor) -> None:
        """The library rounds what it decodes to the type of the scales: float32 ones round nothing."""
        scheme = self.scheme_of(module)
        decoded = BaseCompressor.get_value_from_registry(self.format).decompress(self._exact(parts), scheme)
        require_equal(module, decoded["weight"], meaning)

    def _exact(self, parts: Parts) -> Parts:
        return parts | {"weight_scale": parts["weight_scale"].float()}


def require_equal(module: str, decoded: torch.Tensor, meaning: torch.Tensor) -> None:
    if not torch.equal(decoded.float(), meaning):
        raise AssertionError(f"{module}: the library decodes other weights")


def ranges_of(groups: torch.Tensor, bits: int, symmetric: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Scales and zero points of [..., numbers]. Symmetric scales are small enough that both ends are met."""
    steps = 2**bits - 1
    if symmetric:
        scales = groups.abs().amax(-1) / (steps / 2)
        return scales, torch.zeros_like(scales)
    low, high = groups.amin(-1).clamp(max=0), groups.amax(-1).clamp(min=0)
    scales = (high - low) / steps
    return scales, torch.round(-low / scales) - 2 ** (bits - 1)


@dataclass(frozen=True, kw_only=True)
class PackedIntegers(CompressedTensors):
    """pack-quantized: integers of 1 to 8 bits in words."""

    groups: tuple[tuple[str, int], ...] = (("Linear", 32),)  # (target, group size); -1: a scale for a row
    bits: int = 4
    symmetric: bool = True
    scales: torch.dtype = torch.bfloat16
    shapes: torch.dtype = torch.int64

    @property
    def format(self) -> str:
        return "pack-quantized"

    def schemes(self) -> dict[str, QuantizationScheme]:
        return {
            target: QuantizationScheme(targets=[target], weights=self._arguments(size)) for target, size in self.groups
        }

    def _arguments(self, size: int) -> QuantizationArgs:
        grouped: dict[str, Any] = {"strategy": "group", "group_size": size} if size > 0 else {"strategy": "channel"}
        return QuantizationArgs(num_bits=self.bits, type="int", symmetric=self.symmetric, **grouped)

    def pack(self, module: str, weight: torch.Tensor) -> Parts | None:
        scheme = self.scheme_of(module)
        if scheme is None:
            return None
        size = scheme.weights.group_size or weight.shape[1]
        scales, zeros = ranges_of(per_group(weight, size), self.bits, self.symmetric)
        parts = {"weight": weight, "weight_scale": scales.to(self.scales)}
        if not self.symmetric:
            parts["weight_zero_point"] = zeros.to(torch.int8)
        packed = self.compressed(parts, scheme)
        packed["weight_shape"] = packed["weight_shape"].to(self.shapes)
        return packed

    def meaning(self, module: str, parts: Parts) -> torch.Tensor:
        """Rows are streams of codes, and 2^(bits - 1) means zero. Zero points are such streams along the rows."""
        rows, columns = parts["weight_shape"].tolist()
        middle = 2 ** (self.bits - 1)
        codes = words.unpack(parts["weight_packed"].T, self.bits, columns).T - middle
        zeros = torch.zeros(parts["weight_scale"].shape, dtype=torch.int64)
        if not self.symmetric:
            zeros = words.unpack(parts["weight_zero_point"], self.bits, rows) - middle
        groups = self._groups(parts, columns)
        return (codes - zeros[:, groups]).float() * parts["weight_scale"].float()[:, groups]

    def _groups(self, parts: Parts, columns: int) -> torch.Tensor:
        """The group of each column."""
        return torch.arange(columns) // (columns // parts["weight_scale"].shape[1])


@dataclass(frozen=True, kw_only=True)
class ActOrderIntegers(PackedIntegers):
    """Columns were quantised in another order: weight_g_idx has the group of each. The library (0.20) wrote this once
    and no longer reads it, so its codes are made here; only its packing is used. One group size for all."""

    def config(self) -> dict[str, Any]:
        config = super().config()
        for group in config["config_groups"].values():
            group["weights"]["actorder"] = "group"
        return config

    def pack(self, module: str, weight: torch.Tensor) -> Parts | None:
        scheme = self.scheme_of(module)
        if scheme is None:
            return None
        size = scheme.weights.group_size
        order = torch.from_numpy(randoms.generator(f"order/{module}").permutation(weight.shape[1]))
        groups = torch.empty_like(order)
        groups[order] = torch.arange(weight.shape[1]) // size
        scales, _ = ranges_of(per_group(weight[:, order], size), self.bits, symmetric=True)
        scales = scales.to(self.scales)
        middle = 2 ** (self.bits - 1)
        codes = torch.round(weight / scales.float()[:, groups]).clamp(-middle, middle - 1)
        return {
            "weight_packed": pack_to_int32(codes.to(torch.int8), self.bits),
            "weight_scale": scales,
            "weight_shape": torch.tensor(weight.shape).to(self.shapes),
            "weight_g_idx": groups.to(torch.int32),
        }

    def _groups(self, parts: Parts, columns: int) -> torch.Tensor:
        return parts["weight_g_idx"].long()

    def compare_with_library(self, module: str, parts: Parts, meaning: torch.Tensor) -> None:
        """With the columns in the order of their groups it is a file that the library reads."""
        order = torch.sort(parts["weight_g_idx"], stable=True).indices
        columns = meaning.shape[1]
        codes = words.unpack(parts["weight_packed"].T, self.bits, columns).T[:, order] - 2 ** (self.bits - 1)
        sorted_parts = parts | {"weight_packed": pack_to_int32(codes.to(torch.int8), self.bits)}
        del sorted_parts["weight_g_idx"]
        super().compare_with_library(module, sorted_parts, meaning[:, order])
