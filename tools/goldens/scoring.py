"""Log-probabilities, greedy continuations and the distances to the nearest tie."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

TOP = 5
GREEDY_TOKENS = 16

# A case is kept only if nothing in it lies closer to a tie than this.
MIN_ROUTER_GAP = 1e-4  # between the last chosen and the first rejected expert or group
MIN_TOP_GAP = 4e-4  # between neighbours among the printed log-probabilities: twice the tolerance
MIN_GREEDY_GAP = 1e-2  # between the best and the second token of a greedy step


def decimal(value: float) -> float:
    """The shortest decimal that reads back as the same float32."""
    return float(str(np.float32(value)))


@dataclass
class RouterTrace:
    """What the routers decided while it was watching: per router, the experts used, and the closest calls."""

    used: dict[str, set[int]] = field(default_factory=dict)
    router_gap: float = float("inf")
    group_gap: float = float("inf")


@dataclass
class Line:
    """One line of a case file."""

    token_ids: list[int]
    token_logprobs: list[float | None]
    top_ids: list[list[int]]
    top_logprobs: list[list[float]]
    rows: torch.Tensor  # [T,V] float32, all of it: kept for comparisons, not written
    top_gap: float

    def record(self, label: dict[str, Any]) -> dict[str, Any]:
        return {
            "token_ids": self.token_ids,
            **label,
            "token_logprobs": self.token_logprobs,
            "top_ids": self.top_ids,
            "top_logprobs": self.top_logprobs,
        }


@dataclass
class Greedy:
    prompt: list[int]
    token_ids: list[int]
    logprobs: list[float]
    gap: float


@torch.no_grad()
def logprob_rows(model: nn.Module, token_ids: Sequence[int]) -> torch.Tensor:
    """[T,V]: row i is the distribution after token i."""
    logits = model(input_ids=torch.tensor([list(token_ids)]), use_cache=False).logits[0]
    return torch.log_softmax(logits.float(), dim=-1)


def score(model: nn.Module, token_ids: Sequence[int]) -> Line:
    rows = logprob_rows(model, token_ids)
    top = rows.topk(TOP + 1, dim=-1)
    following = rows[:-1].gather(1, torch.tensor(list(token_ids[1:]))[:, None])[:, 0].tolist()
    return Line(
        token_ids=list(token_ids),
        token_logprobs=[None, *map(decimal, following)],
        top_ids=top.indices[:, :TOP].tolist(),
        top_logprobs=[[decimal(v) for v in row] for row in top.values[:, :TOP].tolist()],
        rows=rows,
        top_gap=(top.values[:, :-1] - top.values[:, 1:]).min().item(),
    )


@torch.no_grad()
def greedy(model: nn.Module, prompt: Sequence[int]) -> Greedy:
    """The continuation by `generate` with its cache; the cacheless rows must tell the same story."""
    ids = torch.tensor([list(prompt)])
    out = model.generate(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=GREEDY_TOKENS,
        do_sample=False,
        output_logits=True,
        return_dict_in_generate=True,
    )
    tokens = out.sequences[0, len(prompt) :].tolist()
    steps = torch.log_softmax(torch.cat(out.logits).float(), dim=-1)
    best = steps.topk(2, dim=-1).values
    cacheless = logprob_rows(model, [*prompt, *tokens])[len(prompt) - 1 : -1]
    difference = (steps - cacheless).abs().max().item()
    if len(tokens) != GREEDY_TOKENS or difference > 5e-5:
        raise AssertionError(f"generate stopped early or its cache changes log-probabilities by {difference}")
    return Greedy(
        prompt=list(prompt),
        token_ids=tokens,
        logprobs=[decimal(v) for v in best[:, 0].tolist()],
        gap=(best[:, 0] - best[:, 1]).min().item(),
    )


def largest_move(before: Sequence[Line], after: Sequence[Line]) -> float:
    """The largest change among the numbers that a case file holds."""
    moves = [0.0]
    for a, b in zip(before, after, strict=True):
        top = torch.tensor(a.top_ids)
        following = torch.tensor(a.token_ids[1:])[:, None]
        moves.append((a.rows.gather(1, top) - b.rows.gather(1, top)).abs().max().item())
        if len(a.token_ids) > 1:
            moves.append((a.rows[:-1].gather(1, following) - b.rows[:-1].gather(1, following)).abs().max().item())
    return max(moves)


def routers(model: nn.Module) -> dict[str, nn.Module]:
    """The router modules by layer; a wrapper that carries an adapter has one of these inside."""
    return {n: m for n, m in model.named_modules() if type(m).__name__.lower().endswith("topkrouter")}


@contextmanager
def traced(model: nn.Module, config: Any) -> Iterator[RouterTrace]:
    """Watches every router of the model. `config` is the transformers config of the base."""
    trace = RouterTrace()
    found = routers(model)
    hooks = [
        module.register_forward_hook(lambda m, _args, out, name=name: _watch(trace, name, m, out, config))
        for name, module in found.items()
    ]
    try:
        yield trace
    finally:
        for hook in hooks:
            hook.remove()


def _watch(trace: RouterTrace, name: str, router: nn.Module, output: tuple, config: Any) -> None:
    logits, _, chosen = output
    trace.used.setdefault(name, set()).update(chosen.flatten().tolist())
    if config.model_type == "gpt_oss":  # chooses by logits, softmax comes after
        scores = logits
    elif hasattr(router, "e_score_correction_bias"):
        scores = logits.float().sigmoid() + router.e_score_correction_bias
    else:
        scores = logits.float().softmax(dim=-1)
    groups = getattr(router, "num_group", None) or 1
    if getattr(router, "topk_method", "groups") == "greedy":
        groups = 1
    if groups > 1:
        scores = _mask_groups(trace, router, scores, groups)
    ordered = scores.sort(dim=-1, descending=True).values
    gap = (ordered[:, router.top_k - 1] - ordered[:, router.top_k]).min().item()
    trace.router_gap = min(trace.router_gap, gap)
    selected = scores.topk(router.top_k, dim=-1).indices.sort(dim=-1).values
    if not torch.equal(selected, chosen.sort(dim=-1).values):
        raise AssertionError(f"the gaps of {name} are measured on other scores than it chooses by")


def _mask_groups(trace: RouterTrace, router: nn.Module, scores: torch.Tensor, groups: int) -> torch.Tensor:
    """Group score: V3 sums the best two of a group, V2 takes the best (formats.md 3.5)."""
    grouped = scores.view(scores.shape[0], groups, -1)
    best = grouped.topk(2, dim=-1).values.sum(-1) if hasattr(router, "e_score_correction_bias") else grouped.amax(-1)
    ordered = best.sort(dim=-1, descending=True).values
    gap = (ordered[:, router.topk_group - 1] - ordered[:, router.topk_group]).min().item()
    trace.group_gap = min(trace.group_gap, gap)
    dropped = best < ordered[:, router.topk_group - 1 : router.topk_group]
    return grouped.masked_fill(dropped[..., None], float("-inf")).view_as(scores)
