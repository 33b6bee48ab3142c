"""gptq, packed here by formats.md 4.2: words along the inputs, zero points along the outputs."""

import re
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from .. import randoms
from . import words
from .scheme import Documents, Parts, Scheme, per_group


@dataclass(frozen=True, kw_only=True)
class Gptq(Scheme):
    method: ClassVar[str] = "gptq"

    bits: int = 4
    group: int = 32  # -1: one for a row
    symmetric: bool = True
    desc_act: bool = False  # columns in the order in which they were quantised
    version: int = 1
    plain: tuple[str, ...] = ("lm_head", ".mlp.gate", ".block_sparse_moe.gate")
    overrides: tuple[tuple[str, dict[str, int] | None], ...] = ()  # of `dynamic`: pattern, and settings or None
    zero_biases: bool = False  # AutoGPTQ's, for Linears without one
    common_names: bool = False  # Mixtral's experts as GPTQModel names them under transformers 5
    own_file: bool = False  # quantize_config.json, as AutoGPTQ wrote

    def config(self) -> dict[str, Any]:
        format_key = "checkpoint_format" if self.version == 2 else "format"
        config = {
            "quant_method": "gptq",
            "bits": self.bits,
            "group_size": self.group,
            "desc_act": self.desc_act,
            "sym": self.symmetric,
            "lm_head": False,
            "pack_dtype": "int32",
            format_key: "gptq_v2" if self.version == 2 else "gptq",
        }
        dynamic = {("+:" if settings else "-:") + pattern: settings or {} for pattern, settings in self.overrides}
        return config | ({"dynamic": dynamic} if dynamic else {})

    def documents(self) -> Documents:
        return {"quantize_config.json": self.config()} if self.own_file else {}

    def renamed(self, name: str) -> str:
        if not self.common_names:
            return name
        leaves = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}
        name = name.replace(".block_sparse_moe.", ".mlp.")
        return re.sub(r"(\.experts\.\d+\.)(w[123])", lambda match: match[1] + leaves[match[2]], name)

    def _settings(self, module: str) -> dict[str, int] | None:
        """The first pattern that matches; None where it leaves the module plain."""
        own = {"bits": self.bits, "group_size": self.group}
        for pattern, settings in self.overrides:
            if re.match(pattern, module):
                return own | settings if settings else None
        return own

    def pack(self, module: str, weight: torch.Tensor) -> Parts | None:
        settings = self._settings(module)
        if module.endswith(self.plain) or settings is None:
            return None
        bits, (rows, columns) = settings["bits"], weight.shape
        size = settings["group_size"] if settings["group_size"] > 0 else columns
        groups = torch.arange(columns) // size
        if self.desc_act:
            order = torch.from_numpy(randoms.generator(f"order/{module}").permutation(columns))
            groups[order] = torch.arange(columns) // size
        scales, zeros = self._ranges(per_group(weight[:, torch.sort(groups, stable=True).indices], size), bits)
        scales = scales.half()
        codes = torch.round(weight / scales.float()[:, groups]) + zeros[:, groups]
        parts = {
            "qweight": words.pack(codes.clamp(0, 2**bits - 1).long().T, bits),
            "qzeros": self._pack_zeros(zeros.long(), bits),
            "scales": scales.T.contiguous(),
            "g_idx": groups.to(torch.int32),
        }
        return parts | ({"bias": torch.zeros(rows, dtype=torch.float16)} if self.zero_biases else {})

    def _ranges(self, groups: torch.Tensor, bits: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Scales and zero points [out, groups]. Some asymmetric zero points are put at an end of the codes, where the
        first version's packing carries from one to the next."""
        steps, middle = 2**bits - 1, 2 ** (bits - 1)
        if self.symmetric:
            scales = groups.abs().amax(-1) / (steps / 2)
            return scales, torch.full_like(scales, middle)
        low, high = groups.amin(-1).clamp(max=0), groups.amax(-1).clamp(min=0)
        scales = (high - low) / steps
        zeros = torch.round(-low / scales)
        zeros[3::16, 0] = 0
        zeros[10::16, -1] = steps
        return scales, zeros

    def _pack_zeros(self, zeros: torch.Tensor, bits: int) -> torch.Tensor:
        """[groups, words]. The first version stores them less one, subtracted from whole words."""
        packed = words.pack(zeros, bits)
        return (packed - _one_in_each(bits) if self.version == 1 else packed).T.contiguous()

    def meaning(self, module: str, parts: Parts) -> torch.Tensor:
        groups, scales = parts["g_idx"].long(), parts["scales"].float().T
        columns, rows = len(groups), scales.shape[0]
        bits = 32 * parts["qweight"].shape[0] // columns
        packed = parts["qzeros"].T
        zeros = words.unpack(packed + _one_in_each(bits) if self.version == 1 else packed, bits, rows)
        codes = words.unpack(parts["qweight"], bits, columns).T
        return (codes - zeros[:, groups]).float() * scales[:, groups]


def _one_in_each(bits: int) -> int:
    """A word that holds a one in every code; codes of three bits cross words, and no first version holds them here."""
    if 32 % bits:
        raise ValueError(f"codes of {bits} bits")
    ones = sum(1 << at for at in range(0, 32, bits))
    return ones - (1 << 32) if ones >> 31 else ones
