"""Models that carry a state from token to token: how far two orders of the same sums lie apart, and what the state says."""

import copy
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch import nn
from transformers import DynamicCache

from . import scoring

# The most that chunks may differ from single steps, and from float64: a quarter of the tolerance.
MAX_ROUNDING = 5e-5


def delta_nets(model: nn.Module) -> list[Any]:
    return [module for module in model.modules() if type(module).__name__.endswith("GatedDeltaNet")]


@contextmanager
def stepwise(model: nn.Module) -> Iterator[None]:
    """Every token on its own, where transformers computes chunks of 64 tokens."""
    with ExitStack() as stack:
        for name in {type(net).__module__ for net in delta_nets(model)}:
            module: Any = sys.modules[name]
            steps = module.torch_recurrent_gated_delta_rule
            stack.enter_context(mock.patch.object(module, "torch_chunk_gated_delta_rule", steps))
        yield


@contextmanager
def all_in_float64() -> Iterator[None]:
    """What transformers widens to float32 is widened to float64."""
    with ExitStack() as stack:
        for name in ("float", "float32"):
            stack.enter_context(mock.patch.object(torch, name, torch.float64))
        stack.enter_context(mock.patch.object(torch.Tensor, "float", torch.Tensor.double))
        yield


@torch.no_grad()
def moves_without_state(model: Any, line: scoring.Line, at: int) -> dict[str, float]:
    """How far the numbers after token `at` move if the states of the delta nets, or of their convolutions, start anew."""
    moves = {}
    for what in ("state", "window"):
        cache = DynamicCache(config=model.config.get_text_config())
        model(input_ids=torch.tensor([line.token_ids[:at]]), cache=cache, use_cache=True)
        for net in delta_nets(model):
            state = cache.get_recurrent_state(net.layer_idx) if what == "state" else cache.get_conv_state(net.layer_idx)
            state.zero_()
        logits = model(input_ids=torch.tensor([line.token_ids[at:]]), cache=cache, use_cache=True).logits[0]
        following = torch.tensor(line.token_ids[at + 1 :])[:, None]
        before, after = line.rows[at:-1], torch.log_softmax(logits.float(), dim=-1)[:-1]
        moves[what] = (before.gather(1, following) - after.gather(1, following)).abs().max().item()
    return moves


def rounding(model: nn.Module, lines: Sequence[scoring.Line]) -> float:
    """How far any number of the lines moves when it is computed token by token, and in float64."""
    with stepwise(model):
        steps = [scoring.score(model, line.token_ids) for line in lines]
    exact = copy.deepcopy(model).double()
    with all_in_float64():
        wide = [scoring.logprob_rows(exact, line.token_ids) for line in lines]
    moves = [scoring.largest_move(lines, steps)]
    moves += [(line.rows - rows).abs().max().item() for line, rows in zip(lines, wide, strict=True)]
    return max(moves)
