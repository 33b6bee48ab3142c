"""Longer prompts for models that carry a state: lengths beside every border of a page and of a chunk."""

from collections.abc import Sequence
from typing import Any

from torch import nn

from . import randoms, recurrent, scoring
from .spec import VOCAB_SIZE

FILE = "long.jsonl"

LENGTHS = (1, 15, 16, 17, 48, 63, 64, 65, 130, 300)
ADAPTER_LENGTHS = (17, 65, 130)

# Where the state is lost, to see that the rest of a line would notice.
BORDER = 64
MIN_MOVE = 5e-2

ATTEMPTS = 100


def draw(model: nn.Module, key: str, lengths: Sequence[int]) -> list[scoring.Line]:
    return [_draw(model, f"{key}/{length}", length) for length in lengths]


def _draw(model: nn.Module, key: str, length: int) -> scoring.Line:
    for attempt in range(ATTEMPTS):
        prompt = randoms.token_ids(f"{key}/{attempt}", VOCAB_SIZE, length)
        with scoring.traced(model, model.config) as trace:
            line = scoring.score(model, prompt)
        if trace.router_gap >= scoring.MIN_ROUTER_GAP and recurrent.rounding(model, [line]) <= recurrent.MAX_ROUNDING:
            return line
    raise RuntimeError(f"{key}: every prompt of {length} tokens has a router close to a tie")


def moves(model: nn.Module, lines: Sequence[scoring.Line]) -> dict[str, float]:
    """The smallest of the lines that go on well behind the border."""
    seen = [recurrent.moves_without_state(model, each, BORDER) for each in lines if len(each.token_ids) > BORDER + 16]
    smallest = {what: min(each[what] for each in seen) for what in seen[0]}
    if min(smallest.values()) < MIN_MOVE:
        raise AssertionError(f"a lost state moves the lines by {smallest}")
    return {what: float(f"{value:.3g}") for what, value in smallest.items()}


def record(line: scoring.Line) -> dict[str, Any]:
    return {"token_ids": line.token_ids, "token_logprobs": line.token_logprobs}
