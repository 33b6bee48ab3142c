"""mxfp4: gpt-oss, whose fused experts lie in blocks of 32 inputs."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from . import floats
from .scheme import Parts, Scheme


@dataclass(frozen=True, kw_only=True)
class GptOssMxFp4(Scheme):
    method: ClassVar[str] = "mxfp4"

    GROUP: ClassVar[int] = 32
    EMAX: ClassVar[int] = 2  # the exponent of 4, the largest power of two

    def config(self) -> dict[str, Any]:
        plain = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
        return {"quant_method": "mxfp4", "modules_to_not_convert": plain}

    def takes(self, name: str, tensor: torch.Tensor) -> bool:
        return tensor.dim() == 3

    def stored_name(self, module: str, part: str) -> str:
        return f"{module}_{part}"

    def pack(self, module: str, weight: torch.Tensor) -> Parts | None:
        """[E, in, out] in memory; the blocks are those of rows [E, out, in]."""
        rows = weight.transpose(1, 2).unflatten(-1, (-1, self.GROUP))  # [E, out, blocks, 32]
        exponents = floats.exponent_of(rows.abs().amax(-1), self.EMAX)
        codes = floats.e2m1_codes(rows / torch.exp2(exponents)[..., None])
        return {"blocks": floats.pack_e2m1(codes), "scales": floats.e8m0(exponents)}

    def meaning(self, module: str, parts: Parts) -> torch.Tensor:
        values = floats.unpack_e2m1(parts["blocks"]) * floats.power(parts["scales"])[..., None]
        return values.flatten(-2).transpose(1, 2).contiguous()

    def compare_with_library(self, module: str, parts: Parts, meaning: torch.Tensor) -> None:
        """bf16 holds what it decodes to."""
        decoded = convert_moe_packed_tensors(parts["blocks"], parts["scales"])
        if not torch.equal(decoded.float(), meaning):
            raise AssertionError(f"{module}: transformers decodes other weights")
