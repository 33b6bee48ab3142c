"""Short prompts on which every router decides by far, so that a run in bf16 chooses the same experts."""

from typing import Any

import torch
from torch import nn

from . import randoms, scoring
from .spec import VOCAB_SIZE

TOKENS = 16

# Of every router and group: of probabilities, and of gpt_oss's logits.
MIN_GAP = 2e-2
MIN_LOGIT_GAP = 0.2

# As text does, a prompt goes on with a token that the model expects: one of so many, while one of them is decided.
LIKELY = 16

# Some prompts amplify rounding, and a difference there says little: the calmest of so many are taken.
PROMPTS = 8
LINES = 2
NOISES = 4
ROUNDING = 2**-9  # relative, of bf16

# Noise of bf16 turns a choice over now and then only, where it is narrow.
MORE_NOISES = 24
# A token that noise moves by more than this has been to another expert.
MOST_MOVE = 1.0


def draw(model: nn.Module, key: str, count: int = LINES, rounding: float = ROUNDING) -> list[dict[str, Any]]:
    """So many lines of `score`'s input with their reference."""
    lines = [scoring.score(model, _prompt(model, f"{key}/{i}")) for i in range(PROMPTS)]
    lines.sort(key=lambda line: _moves(model, line, rounding, NOISES).mean().item())
    if rounding < ROUNDING:
        lines.sort(key=lambda line: _moves(model, line, ROUNDING, MORE_NOISES).max().item() > MOST_MOVE)
    return [{"token_ids": line.token_ids, "token_logprobs": line.token_logprobs} for line in lines[:count]]


def _prompt(model: nn.Module, key: str) -> list[int]:
    """Extended token by token: a later one changes no choice of a router before it."""
    random = randoms.generator(key)
    prompt: list[int] = []
    candidates = random.permutation(VOCAB_SIZE).tolist()
    while len(prompt) < TOKENS:
        for token in candidates:
            following = _following(model, [*prompt, token])
            if following is not None:
                break
        else:
            raise RuntimeError(f"{key}: no token leaves every router decided behind {prompt}")
        prompt.append(token)
        candidates = [*random.permutation(following[:LIKELY]).tolist(), *following[LIKELY:]]
    return prompt


def _following(model: nn.Module, prompt: list[int]) -> list[int] | None:
    """What may follow, the likeliest first; None if a router is in doubt."""
    with scoring.traced(model, model.config) as trace:
        rows = scoring.logprob_rows(model, prompt)
    least = MIN_LOGIT_GAP if model.config.model_type == "gpt_oss" else MIN_GAP
    if min(trace.router_gap, trace.group_gap) < least:
        return None
    return rows[-1].argsort(descending=True, stable=True).tolist()


def _moves(model: nn.Module, line: scoring.Line, rounding: float, noises: int) -> torch.Tensor:
    """How far noise of that size on every module's output moves each token of the line, of one noise after another."""
    following = torch.tensor(line.token_ids[1:])[:, None]
    moves = []
    for noise in range(noises):
        random = randoms.generator(f"decided/noise/{noise}")

        def disturb(_module: nn.Module, _args: Any, output: Any, random: Any = random) -> Any:
            if not isinstance(output, torch.Tensor):
                return None
            factors = 1 + random.uniform(-rounding, rounding, tuple(output.shape))
            return output * torch.from_numpy(factors).to(output.dtype)

        hooks = [module.register_forward_hook(disturb) for module in model.modules()]
        rows = scoring.logprob_rows(model, line.token_ids)
        for hook in hooks:
            hook.remove()
        moves.append((rows[:-1].gather(1, following) - line.rows[:-1].gather(1, following)).abs())
    return torch.stack(moves)
