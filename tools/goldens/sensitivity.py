"""Takes one tensor away at a time, and reads files the wrong way, to see that a case would notice."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from . import scoring
from .spec import ModelSpec, is_outside_text

Undo = Callable[[], None]
Change = Callable[[], Undo]


def _zero(view: torch.Tensor) -> Undo:
    return _replace(view, torch.zeros_like(view))


def _replace(view: torch.Tensor, value: torch.Tensor) -> Undo:
    before = view.clone()
    view.copy_(value)
    return lambda: view.copy_(before)


def _move(model: nn.Module, lines: Sequence[scoring.Line]) -> float:
    return scoring.largest_move(lines, [scoring.score(model, line.token_ids) for line in lines])


def _weakest(model: nn.Module, lines: Sequence[scoring.Line], changes: Iterator[Change]) -> float:
    weakest = float("inf")
    for change in changes:
        undo = change()
        weakest = min(weakest, _move(model, lines))
        undo()
    return weakest


@torch.no_grad()
def of_base(model: nn.Module, spec: ModelSpec, lines: Sequence[scoring.Line]) -> dict[str, float]:
    """The smallest move when a tensor of the checkpoint is zeroed, a norm set to ones, a router's rows rotated."""
    return {"weakest_tensor": _weakest(model, lines, _base_changes(model, spec))}


def _base_changes(model: nn.Module, spec: ModelSpec) -> Iterator[Change]:
    buffers = [(n, b) for n, b in model.named_buffers() if n.endswith("e_score_correction_bias")]
    for name, tensor in [*model.named_parameters(), *buffers]:
        data = tensor.data
        if is_outside_text(name):
            continue
        if ".experts." in name:
            for view in _expert_views(name, data, spec):
                yield partial(_zero, view)
        elif "norm" in name:
            adds_one = spec.norms_add_one and not name.endswith("linear_attn.norm.weight")
            yield partial(_replace, data, torch.zeros_like(data) if adds_one else torch.ones_like(data))
        elif name.endswith(("mlp.gate.weight", "mlp.router.weight")):
            yield partial(_replace, data, data.roll(1, 0))
        else:
            yield partial(_zero, data)


def _expert_views(name: str, data: torch.Tensor, spec: ModelSpec) -> Iterator[torch.Tensor]:
    """Each expert's gate, up and down weight or bias."""
    for e in range(data.shape[0]):
        if "gate_up" not in name:
            yield data[e]
        elif spec.family == "gpt_oss":
            yield data[e, ..., 0::2]
            yield data[e, ..., 1::2]
        else:
            half = data.shape[1] // 2
            yield data[e, :half]
            yield data[e, half:]


@torch.no_grad()
def of_adapter(model: nn.Module, spec: ModelSpec, lines: Sequence[scoring.Line]) -> dict[str, float]:
    """How far the answer moves without its weakest tensor, with every scale 1, and with B's columns misread."""
    moves = {"weakest_tensor": _weakest(model, lines, _adapter_changes(model, spec))}
    scaled: list[Any] = [m for m in model.modules() if isinstance(getattr(m, "scaling", None), dict) and m.scaling]
    before = [m.scaling["default"] for m in scaled]
    if any(scale != 1 for scale in before):
        for module in scaled:
            module.scaling["default"] = 1.0
        moves["scale"] = _move(model, lines)
        for module, scale in zip(scaled, before, strict=True):
            module.scaling["default"] = scale
    wrappers: list[Any] = [m for m in model.modules() if type(m).__name__ == "ParamWrapper" and m.num_experts > 1]
    if wrappers:
        moves |= _misread(model, wrappers, spec, lines)
    return moves


def _misread(
    model: nn.Module, wrappers: Sequence[Any], spec: ModelSpec, lines: Sequence[scoring.Line]
) -> dict[str, float]:
    moves: dict[str, float] = {}
    undo: list[Undo] = []
    for wrapper in wrappers:
        b = wrapper.lora_B["default"].weight.data
        if b.shape[1] > spec.experts:
            undo.append(_replace(b, b.view(b.shape[0], spec.experts, -1).transpose(1, 2).reshape(b.shape)))
    if undo:
        moves["b_columns"] = _move(model, lines)
    for step in undo:
        step()
    square = [w for w in wrappers if w.lora_A["default"].in_features == w.lora_B["default"].out_features]
    for wrapper in square:
        moves["orientation"] = min(moves.get("orientation", float("inf")), _turned(model, wrapper, spec, lines))
    return moves


def _turned(model: nn.Module, wrapper: Any, spec: ModelSpec, lines: Sequence[scoring.Line]) -> float:
    """A square projection read in the other orientation: delta_e becomes its transpose."""
    a = wrapper.lora_A["default"].weight.data
    b = wrapper.lora_B["default"].weight.data
    by_expert = a.view(spec.experts, -1, a.shape[-1]).clone()  # [E,r,n]
    columns = b.view(b.shape[0], -1, spec.experts).clone()  # [n,r,E]
    undo = [
        _replace(a, columns.permute(2, 1, 0).reshape(a.shape)),
        _replace(b, by_expert.permute(2, 1, 0).reshape(b.shape)),
    ]
    moved = _move(model, lines)
    for step in undo:
        step()
    return moved


def _adapter_changes(model: nn.Module, spec: ModelSpec) -> Iterator[Change]:
    """lora_A needs no turn of its own: without it the answer is the one without lora_B."""
    wrapped: dict[str, Any] = {
        name: module for name, module in model.named_modules() if type(module).__name__ == "ParamWrapper"
    }
    for name, parameter in model.named_parameters():
        data = parameter.data
        wrapper = wrapped.get(name.partition(".lora_B.")[0])
        if "lora_magnitude_vector" in name:
            yield partial(_replace, data, torch.full_like(data, data.mean().item()))
        elif ".modules_to_save." in name or "lora_embedding_B" in name:
            yield partial(_zero, data)
        elif ".lora_B." in name and wrapper is not None and wrapper.num_experts > 1:
            for e in range(spec.experts):
                column = data.view(data.shape[0], -1, spec.experts)[:, :, e]
                if column.any():
                    yield partial(_zero, column)
        elif ".lora_B." in name or _is_replaced_bias(model, name):
            yield partial(_zero, data)


def _is_replaced_bias(model: Any, name: str) -> bool:
    bias = model.active_peft_config.bias
    return name.endswith(".bias") and (bias == "all" or (bias == "lora_only" and ".base_layer." in name))
