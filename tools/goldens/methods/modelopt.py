"""modelopt, packed here by formats.md 4.6."""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, ClassVar

import torch

from . import floats
from .scheme import Documents, Parts, Rounding, Scheme, per_group, spread


@dataclass(frozen=True, kw_only=True)
class _ModelOpt(Scheme):
    method: ClassVar[str] = "modelopt"

    algorithm: ClassVar[str]
    group: ClassVar[int | None] = None

    ignore: tuple[str, ...] = ("lm_head", "*.mlp.gate")
    own_file: bool = False  # hf_quant_config.json instead of config.json

    def config(self) -> dict[str, Any]:
        group = {"group_size": self.group} if self.group else {}
        if self.own_file:
            settings = {
                "quant_algo": self.algorithm,
                "kv_cache_quant_algo": "FP8",
                "exclude_modules": list(self.ignore),
            }
            return {"producer": {"name": "modelopt", "version": "0.47.0"}, "quantization": settings | group}
        return {
            "quant_method": "modelopt",
            "quant_algo": self.algorithm,
            "ignore": list(self.ignore),
            "kv_cache_scheme": {"dynamic": False, "num_bits": 8, "type": "float"},
            "producer": {"name": "modelopt", "version": "0.47.0"},
        } | group

    def documents(self) -> Documents:
        return {"hf_quant_config.json": self.config()} if self.own_file else {}

    @property
    def static_inputs(self) -> bool:
        return True

    def pack(self, module: str, weight: torch.Tensor) -> Parts | None:
        if any(fnmatchcase(module, pattern) for pattern in self.ignore):
            return None
        return self._pack(weight) | self._cache_scale(module)

    def _pack(self, weight: torch.Tensor) -> Parts:
        raise NotImplementedError

    def _cache_scale(self, module: str) -> Parts:
        """Of quantised keys and values; no program has to use it."""
        for side in ("k", "v"):
            if module.endswith(f".{side}_proj"):
                return {f"{side}_scale": torch.tensor(0.125)}
        return {}


@dataclass(frozen=True, kw_only=True)
class ModelOptFp8(_ModelOpt):
    algorithm: ClassVar[str] = "FP8"

    def _pack(self, weight: torch.Tensor) -> Parts:
        scale = weight.abs().max() / floats.E4M3_MAX
        return {"weight": floats.to_e4m3(weight / scale), "weight_scale": scale}

    def meaning(self, module: str, parts: Parts) -> torch.Tensor:
        return parts["weight"].float() * parts["weight_scale"]

    def input_parts(self, module: str, low: float, high: float) -> Parts:
        return {"input_scale": torch.tensor(max(-low, high) / floats.E4M3_MAX)}

    def rounding(self, module: str, parts: Parts) -> Rounding | None:
        return Rounding("fixed", integers=False, scale=float(parts["input_scale"]))


@dataclass(frozen=True, kw_only=True)
class ModelOptNvFp4(_ModelOpt):
    """A scale in FP8 for 16 inputs, times a number of the whole weight. Inputs of 4 bits stay as they are."""

    algorithm: ClassVar[str] = "NVFP4"
    group: ClassVar[int | None] = 16

    def _pack(self, weight: torch.Tensor) -> Parts:
        number = weight.abs().max() / (floats.E4M3_MAX * floats.E2M1_MAX)
        largest = per_group(weight, self.group).abs().amax(-1)
        scales = floats.to_e4m3(largest / floats.E2M1_MAX / number)
        codes = floats.e2m1_codes(weight / spread(scales.float() * number, weight.shape[1]))
        return {"weight": floats.pack_e2m1(codes), "weight_scale": scales, "weight_scale_2": number}

    def meaning(self, module: str, parts: Parts) -> torch.Tensor:
        values = floats.unpack_e2m1(parts["weight"])
        return values * spread(parts["weight_scale"].float() * parts["weight_scale_2"], values.shape[1])

    def input_parts(self, module: str, low: float, high: float) -> Parts:
        return {"input_scale": torch.tensor(max(-low, high) / (floats.E4M3_MAX * floats.E2M1_MAX))}


@dataclass(frozen=True, kw_only=True)
class ModelOptMixed(_ModelOpt):
    """An algorithm for each layer, FP8 or NVFP4; what is not listed stays plain."""

    algorithm: ClassVar[str] = "MIXED_PRECISION"

    layers: tuple[tuple[str, str], ...]  # (module, algorithm)

    def config(self) -> dict[str, Any]:
        groups = {"NVFP4": {"group_size": 16}}
        layers = {name: {"quant_algo": algorithm} | groups.get(algorithm, {}) for name, algorithm in self.layers}
        return super().config() | {"quantized_layers": layers}

    def _of(self, module: str) -> _ModelOpt:
        return {"FP8": ModelOptFp8(), "NVFP4": ModelOptNvFp4()}[dict(self.layers)[module]]

    def pack(self, module: str, weight: torch.Tensor) -> Parts | None:
        return self._of(module).pack(module, weight) if module in dict(self.layers) else None

    def meaning(self, module: str, parts: Parts) -> torch.Tensor:
        return self._of(module).meaning(module, parts)

    def rounding(self, module: str, parts: Parts) -> Rounding | None:
        return self._of(module).rounding(module, parts)

    def input_parts(self, module: str, low: float, high: float) -> Parts:
        return self._of(module).input_parts(module, low, high)
