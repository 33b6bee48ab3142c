"""Inputs of products, seen or changed: what quantised activations make of a model.

A module answers with W Q(x), and an adapter adds its deltas of the unrounded x. Experts hold their weights in one
tensor, into which PEFT merges deltas; they are taken apart again here. What is rounded is decided in float32, by the
rules of motley's kernels/weight_view.h; the rest is computed in the model's own type.
"""

import types
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from .methods.floats import E4M3_MAX, to_e4m3
from .methods.scheme import Rounding

# Called with a module's name and its inputs [..., in]; answers with what the module multiplies.
OnInput = Callable[[str, torch.Tensor], torch.Tensor]

# Rows of nothing but tiny numbers still have scales that can be divided by.
_SMALLEST_ROW_SCALE = 1 / (E4M3_MAX * 512)
_SMALLEST_BLOCK_MAGNITUDE = 1e-10


def rounded(x: torch.Tensor, rounding: Rounding) -> torch.Tensor:
    """What the codes of x mean, in the type of x."""
    parts = [_codes(block, rounding) for block in _sharing_a_scale(x, rounding)]
    return torch.cat([codes.to(x.dtype) * scale.to(x.dtype) for codes, scale in parts], dim=-1)


def near_ties(x: torch.Tensor, rounding: Rounding, noise: float) -> torch.Tensor:
    """The rows [...] of x in which a relative error of that size rounds some input the other way."""
    turned = [
        (_codes(block, rounding, 1 + noise)[0] != _codes(block, rounding, 1 - noise)[0]).any(-1)
        for block in _sharing_a_scale(x, rounding)
    ]
    return torch.stack(turned).any(0)


def _sharing_a_scale(x: torch.Tensor, rounding: Rounding) -> tuple[torch.Tensor, ...]:
    return x.split(rounding.columns, dim=-1) if rounding.by == "row_block" else (x,)


def _codes(x: torch.Tensor, rounding: Rounding, factor: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes of inputs that share a scale in each row, less the zero, and that scale."""
    narrow = x.float()
    scale = _scale(narrow.abs().amax(-1, keepdim=True), rounding)
    ratio = torch.where(scale == 0, 0.0, narrow / scale) * factor
    if rounding.integers:
        codes = (torch.round(ratio) + rounding.zero).clamp(-128, 127) - rounding.zero
    else:
        codes = to_e4m3(ratio).float()
    return codes, scale


def _scale(largest: torch.Tensor, rounding: Rounding) -> torch.Tensor:
    if rounding.by == "fixed":
        return torch.full_like(largest, rounding.scale)
    if rounding.integers:
        return largest / 127
    if rounding.by == "row":
        return (largest / E4M3_MAX).clamp(min=_SMALLEST_ROW_SCALE)
    scale = largest.clamp(min=_SMALLEST_BLOCK_MAGNITUDE) / E4M3_MAX
    if not rounding.power_of_two:
        return scale
    fraction, exponent = torch.frexp(scale)  # scale = fraction * 2^exponent, 0.5 <= fraction < 1
    return torch.ldexp(torch.ones_like(scale), exponent - (fraction == 0.5).int())


def round_inputs(model: nn.Module, roundings: dict[str, Rounding]) -> nn.Module:
    """The model itself, which rounds from now on what goes into the named modules. MLA's kv_b_proj is never among
    them: in the absorbed form its weight is multiplied with queries."""

    def on_input(name: str, x: torch.Tensor) -> torch.Tensor:
        found = None if name.endswith(".kv_b_proj") else roundings.get(name)
        return x if found is None else rounded(x, found)

    intercept(model, on_input)
    return model


def observed_ranges(model: nn.Module, prompts: list[list[int]]) -> dict[str, tuple[float, float]]:
    """The lowest and the highest input of every module."""
    ranges: dict[str, tuple[float, float]] = {}

    def on_input(name: str, x: torch.Tensor) -> torch.Tensor:
        if x.numel():
            low, high = ranges.get(name, (0.0, 0.0))
            ranges[name] = (min(low, x.min().item()), max(high, x.max().item()))
        return x

    intercept(model, on_input)
    with torch.no_grad():
        for prompt in prompts:
            model(input_ids=torch.tensor([prompt]), use_cache=False)
    return ranges


def intercept(model: nn.Module, on_input: OnInput) -> None:
    """Puts `on_input` before every Linear and every expert's projection. Adapters' own Linears have names that no
    base has."""
    for path, module in model.named_modules():
        name = base_name(path)
        if isinstance(module, nn.Linear):
            module.forward = types.MethodType(_linear(name, on_input), module)
        elif type(module).__name__.endswith("Experts") and isinstance(
            getattr(module, "gate_up_proj", None), torch.Tensor
        ):
            module.forward = types.MethodType(_experts(name, on_input), module)


def base_name(path: str) -> str:
    """The base's name of a module, whether it is wrapped by PEFT or not."""
    return path.removeprefix("base_model.model.").replace(".base_layer", "")


def _linear(name: str, on_input: OnInput) -> Callable[..., torch.Tensor]:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return functional.linear(on_input(name, x), self.weight, self.bias)

    return forward


def _experts(name: str, on_input: OnInput) -> Callable[..., torch.Tensor]:
    """Gated experts without biases, gate's rows above up's."""

    def forward(self: Any, x: torch.Tensor, chosen: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
        gate_up, gate_up_delta = _taken_apart(self, "gate_up_proj")
        down, down_delta = _taken_apart(self, "down_proj")
        total = torch.zeros_like(x)
        for e in range(self.num_experts):
            rows, places = torch.where(chosen == e)
            own = x[rows]
            width = gate_up.shape[1] // 2
            expert = f"{name}.{e}"
            gate = functional.linear(on_input(f"{expert}.gate_proj", own), gate_up[e, :width])
            up = functional.linear(on_input(f"{expert}.up_proj", own), gate_up[e, width:])
            deltas = functional.linear(own, gate_up_delta[e])
            inner = self.act_fn(gate + deltas[:, :width]) * (up + deltas[:, width:])
            out = functional.linear(on_input(f"{expert}.down_proj", inner), down[e])
            out = out + functional.linear(inner, down_delta[e])
            total.index_add_(0, rows, (out * shares[rows, places, None]).to(total.dtype))
        return total

    return forward


def _taken_apart(experts: Any, name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The base's weight, and what PEFT added to it for the time of this call."""
    weight = getattr(experts, name)
    adapted = getattr(experts, "parametrizations", {})
    base = adapted[name].original if name in adapted else weight
    return base, weight - base
