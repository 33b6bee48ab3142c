"""Prompts of random tokens that float32 decides, or bf16 too: routers are away from ties, by little or by far."""

import torch
from goldens import randoms, scoring
from goldens.methods.scheme import Rounding
from goldens.rounding import base_name, near_ties
from torch import nn

ATTEMPTS = 60
ROUNDS = 400

# Float32 moves what a router sorts by 1e-6 to 1e-5. These are logits of gpt-oss, probabilities of Qwen3-MoE and Qwen3.5 (the last
# chosen have a few hundredths), and sigmoids with their bias of the others.
MIN_GAP = {"gpt_oss": 1e-4, "qwen3_moe": 3e-6, "qwen3_5_moe_text": 3e-6, "deepseek_v3": 3e-5, "glm4_moe": 3e-5}
# Away from ties by far: several times what bf16 moves.
MIN_DECIDED_GAP = {"gpt_oss": 0.05, "qwen3_moe": 5e-3, "qwen3_5_moe_text": 5e-3}
NOISE = 2**-20  # relative, of float32
FIRST = ("model.layers.0.self_attn.q_proj", "model.layers.0.linear_attn.in_proj_qkv")


def drawn(loaded: nn.Module, key: str, length: int) -> list[int]:
    """The first prompt of that length that float32 decides."""
    config = loaded.config
    for attempt in range(ATTEMPTS):
        prompt = randoms.token_ids(f"{key}/{attempt}", config.vocab_size, length)
        if closest_call(loaded, prompt) >= MIN_GAP[config.model_type]:
            return prompt
    raise RuntimeError(f"{key}: no {length} tokens away from ties in {ATTEMPTS} attempts")


def decided(loaded: nn.Module, tokens: list[int], key: str, length: int) -> list[int]:
    """One of those tokens that bf16 decides too. Where a router is in doubt the token is drawn anew, until there are none
    such: rows before the first of them stay as they are."""
    least = MIN_DECIDED_GAP[loaded.config.model_type]
    prompt = _draw(tokens, f"{key}/0", length)
    for attempt in range(1, ROUNDS):
        in_doubt = (_gaps(loaded, prompt) < least).tolist()
        if not any(in_doubt):
            return prompt
        fresh = _draw(tokens, f"{key}/{attempt}", length)
        prompt = [new if doubt else old for new, old, doubt in zip(fresh, prompt, in_doubt, strict=True)]
    raise RuntimeError(f"{key}: {sum(in_doubt)} of {length} tokens in doubt after {ROUNDS} rounds")


def _draw(tokens: list[int], key: str, length: int) -> list[int]:
    return [tokens[i] for i in randoms.token_ids(key, len(tokens), length)]


def steady_tokens(loaded: nn.Module, roundings: dict[str, Rounding]) -> list[int]:
    """Those whose inputs of the first mixer are away from ties. Many lie on one, because embeddings and
    norms have the few bits of bf16; if float32 turns one, all rows behind it differ."""
    tokens = list(range(loaded.config.vocab_size))
    first = next((name for name in FIRST if name in roundings), None)
    if first is None:
        return tokens
    rounding = roundings[first]
    seen: list[torch.Tensor] = []
    module = next(m for path, m in loaded.named_modules() if base_name(path) == first and isinstance(m, nn.Linear))
    hook = module.register_forward_pre_hook(lambda _module, args: seen.append(near_ties(args[0][0], rounding, NOISE)))
    scoring.logprob_rows(loaded, tokens)
    hook.remove()
    return [token for token, near in zip(tokens, seen[0].tolist(), strict=True) if not near]


def closest_call(loaded: nn.Module, prompt: list[int]) -> float:
    """Of any router, or group of experts, in any row."""
    with scoring.traced(loaded, loaded.config) as trace:
        scoring.logprob_rows(loaded, prompt)
    return min(trace.router_gap, trace.group_gap)


def _gaps(loaded: nn.Module, prompt: list[int]) -> torch.Tensor:
    """By row, of routers without groups: the least gap between the last chosen and the first rejected expert."""
    rows: list[torch.Tensor] = []

    def watch(router: nn.Module, _args: tuple, output: tuple) -> None:
        logits = output[0].float()
        scores = logits if loaded.config.model_type == "gpt_oss" else logits.softmax(dim=-1)
        ordered = scores.sort(dim=-1, descending=True).values
        rows.append(ordered[:, router.top_k - 1] - ordered[:, router.top_k])

    hooks = [router.register_forward_hook(watch) for router in scoring.routers(loaded).values()]
    scoring.logprob_rows(loaded, prompt)
    for hook in hooks:
        hook.remove()
    return torch.stack(rows).amin(0)
