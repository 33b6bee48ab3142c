"""awq, packed here by formats.md 4.3: a word holds eight outputs of an input, in an order of their own."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from . import words
from .scheme import Documents, Parts, Scheme, per_group

# Of the four bits at 4 i: the output.
_ORDER = torch.tensor([0, 2, 4, 6, 1, 3, 5, 7])


@dataclass(frozen=True, kw_only=True)
class Awq(Scheme):
    method: ClassVar[str] = "awq"

    group: int = 32
    scales: torch.dtype = torch.float16
    plain: tuple[str, ...] = ("lm_head", ".gate")  # the ends of names
    listed: tuple[str, ...] | None = ("gate",)  # modules_to_not_convert: parts of names, too many of them
    own_file: bool = False  # quant_config.json with the older names of its settings

    def config(self) -> dict[str, Any]:
        if self.own_file:
            return {"zero_point": True, "q_group_size": self.group, "w_bit": 4, "version": "GEMM"}
        return {
            "quant_method": "awq",
            "bits": 4,
            "group_size": self.group,
            "zero_point": True,
            "version": "gemm",
            "modules_to_not_convert": list(self.listed) if self.listed else None,
        }

    def documents(self) -> Documents:
        return {"quant_config.json": self.config()} if self.own_file else {}

    def pack(self, module: str, weight: torch.Tensor) -> Parts | None:
        if module.endswith(self.plain):
            return None
        groups = per_group(weight, self.group)
        low, high = groups.amin(-1), groups.amax(-1)
        scales = ((high - low) / 15).to(self.scales)
        zeros = torch.round(-low / scales.float()).clamp(0, 15)
        each = torch.arange(weight.shape[1]) // self.group
        codes = (torch.round(weight / scales.float()[:, each]) + zeros[:, each]).clamp(0, 15)
        return {
            "qweight": _pack(codes.long().T),
            "qzeros": _pack(zeros.long().T),
            "scales": scales.T.contiguous(),
        }

    def meaning(self, module: str, parts: Parts) -> torch.Tensor:
        codes, zeros, scales = _unpack(parts["qweight"]), _unpack(parts["qzeros"]), parts["scales"].float()
        each = torch.arange(codes.shape[0]) // self.group
        return ((codes - zeros[each]).float() * scales[each]).T.contiguous()


def _pack(codes: torch.Tensor) -> torch.Tensor:
    """Codes [n, out] as [n, out / 8] words."""
    eights = codes.view(codes.shape[0], -1, 8)[:, :, _ORDER].flatten(1)
    return words.pack(eights.T, 4).T.contiguous()


def _unpack(packed: torch.Tensor) -> torch.Tensor:
    eights = words.unpack(packed.T, 4, packed.shape[1] * 8).T.view(packed.shape[0], -1, 8)
    codes = torch.empty_like(eights)
    codes[:, :, _ORDER] = eights
    return codes.flatten(1)
