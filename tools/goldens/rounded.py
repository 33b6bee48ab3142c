"""What checkpoints with quantised activations answer: lines for the base and two adapters, and how sure they are."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from . import decided, models, randoms, scoring
from .adapters import Source, open_with_peft
from .methods.scheme import Rounding
from .rounding import observed_ranges, round_inputs
from .spec import VOCAB_SIZE, ModelSpec

FILE = "rounded_inputs.jsonl"

# The largest mean difference of a label's lines that is no error. Rounding in blocks of FP8 has more and coarser steps.
TOLERANCE = 1e-3
BLOCK_TOLERANCE = 1e-2

# Exact inputs must move a label's lines by more than this many tolerances, and float32 by less than this one.
LEAST_MOVE = 2.0
MOST_NOISE = 0.25

LINES = 3
# Relative, of float32 as it adds up in a few layers: lines are preferred on which it turns no rounding over.
NOISE = 2**-22

ADAPTERS = 2
CALIBRATION_PROMPTS = 12


@dataclass
class Rounded:
    lines: list[dict[str, Any]]
    golden: dict[str, Any]  # for golden.json


def ranges(spec: ModelSpec, plain: Path) -> dict[str, tuple[float, float]]:
    """Of modules' inputs, a little narrower than what was seen, so that some inputs are cut off."""
    prompts = [randoms.token_ids(f"{spec.seed}/calibration/{i}", VOCAB_SIZE, 24) for i in range(CALIBRATION_PROMPTS)]
    seen = observed_ranges(models.load(plain), prompts)
    return {name: (0.9 * low, 0.9 * high) for name, (low, high) in seen.items()}


def make(
    spec: ModelSpec, plain: Path, adapters: Path, sources: Sequence[Source], roundings: dict[str, Rounding]
) -> Rounded:
    tolerance = BLOCK_TOLERANCE if any(each.by == "row_block" for each in roundings.values()) else TOLERANCE
    lines: list[dict[str, Any]] = []
    moves, noises = [], []
    for source in [None, *sources[:ADAPTERS]]:

        def opened(source: Source | None = source) -> nn.Module:
            return open_with_peft(plain, adapters / source.name, source) if source else models.load(plain)

        label = source.name if source else None
        # In float64, so that the reference adds no noise of its own.
        own = decided.draw(
            round_inputs(opened().double(), roundings), f"{spec.seed}/rounded/{label or 'base'}", LINES, NOISE
        )
        moves.append(_mean_difference(own, opened()))
        noises.append(_mean_difference(own, round_inputs(opened(), roundings)))
        lines += [{"adapter": label} | line for line in own]
    if min(moves) < LEAST_MOVE * tolerance or max(noises) > MOST_NOISE * tolerance:
        raise AssertionError(f"{spec.name}: exact inputs move by {moves}, float32 by {noises}")
    golden = {
        "file": FILE,
        "tolerance": tolerance,
        "moves": {"exact_inputs": float(f"{min(moves):.3g}"), "float32": float(f"{max(noises):.3g}")},
    }
    return Rounded(lines, golden)


def _mean_difference(lines: list[dict[str, Any]], model: nn.Module) -> float:
    apart = []
    for line in lines:
        own = scoring.score(model, line["token_ids"]).token_logprobs
        apart += [abs(a - b) for a, b in zip(own[1:], line["token_logprobs"][1:], strict=True)]
    return sum(apart) / len(apart)
