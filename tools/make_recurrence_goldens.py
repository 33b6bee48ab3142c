#!/usr/bin/env python3
"""Makes tests/recurrence/goldens.jsonl: what transformers' plain paths make of rows of recurrent layers.

    /tmp/goldens-venv/bin/python tools/make_recurrence_goldens.py tests/recurrence/goldens.jsonl

needs what tools/goldens-requirements.txt names. A layer a line: its shape, the inputs of every row as src/kernels takes
them (after the norms of keys and queries), and the outputs. Where transformers has a form in chunks too, the two forms'
difference is printed; the form that goes from row to row is recorded.
"""

import json
import pathlib
import sys

import torch
from transformers.models.kimi_linear import modeling_kimi_linear as kimi
from transformers.models.nemotron_h import modeling_nemotron_h as nemotron
from transformers.models.qwen3_5 import modeling_qwen3_5 as qwen

ROWS = 37


def unit(*shape: int) -> torch.Tensor:
    rows = torch.randn(*shape)
    return rows / rows.norm(dim=-1, keepdim=True)


def plain(function):
    """A function's PyTorch form, whatever kernels this machine has."""
    return getattr(function, "__wrapped__", function)


def record(name: str, shape: dict, inputs: dict, out: torch.Tensor) -> dict:
    tensors = {key: value.reshape(ROWS, -1) for key, value in inputs.items()} | {"out": out.reshape(ROWS, -1)}
    numbers = {key: [[float(f"{x:.9g}") for x in row] for row in value.tolist()] for key, value in tensors.items()}
    return {"name": name, **shape, **numbers}


def delta_net() -> dict:
    key_heads, value_heads, dk, dv = 2, 4, 16, 12
    q, k, v = unit(ROWS, key_heads, dk), unit(ROWS, key_heads, dk), torch.randn(ROWS, value_heads, dv)
    g = -torch.rand(ROWS, value_heads).exp() * torch.nn.functional.softplus(torch.randn(ROWS, value_heads) - 2)
    beta = torch.rand(ROWS, value_heads)
    repeats = value_heads // key_heads
    arguments = [x.unsqueeze(0) for x in (q.repeat_interleave(repeats, 1), k.repeat_interleave(repeats, 1), v, g, beta)]
    out, _ = plain(qwen.torch_recurrent_gated_delta_rule)(*arguments)
    chunked, _ = plain(qwen.torch_chunk_gated_delta_rule)(*arguments)
    print("delta net, chunks of 64:", (out - chunked).abs().max().item())
    return record("delta_net", {"key_heads": key_heads, "value_heads": value_heads},
                  {"q": q * dk**-0.5, "k": k, "v": v, "g": g, "beta": beta}, out[0])


def vector_decay() -> dict:
    heads, dk, dv = 2, 16, 20
    q, k, v = unit(ROWS, heads, dk), unit(ROWS, heads, dk), torch.randn(ROWS, heads, dv)
    g = -torch.rand(heads, 1).exp() * torch.nn.functional.softplus(torch.randn(ROWS, heads, dk) - 2)
    beta = torch.rand(ROWS, heads)
    arguments = [x.unsqueeze(0) for x in (q, k, v, g, beta)]
    out, _ = plain(kimi.recurrent_kimi_delta_attention)(*arguments, None, False)
    chunked, _ = plain(kimi.chunk_kimi_delta_attention)(*arguments, initial_state=None, output_final_state=False)
    print("vector decay, chunks of 64:", (out - chunked).abs().max().item())
    return record("vector_decay", {"key_heads": heads, "value_heads": heads},
                  {"q": q * dk**-0.5, "k": k, "v": v, "g": g, "beta": beta}, out[0])


def state_space() -> dict:
    groups, heads, width, states = 2, 4, 12, 16
    x, b, c = torch.randn(ROWS, heads, width), torch.randn(ROWS, groups, states), torch.randn(ROWS, groups, states)
    dt = torch.nn.functional.softplus(torch.randn(ROWS, heads) - 2)
    a = -torch.rand(heads).exp()
    state = torch.zeros(1, heads, width, states)
    update = plain(nemotron.mamba2_selective_state_update)
    out = torch.stack([
        update(state, x[t][None], dt[t][None, :, None].expand(-1, -1, width), a[:, None, None].expand(-1, width, states),
               b[t][None], c[t][None])[0] for t in range(ROWS)])
    chunked = plain(nemotron.mamba2_chunk_scan)(x[None], dt[None], a, b[None], c[None], chunk_size=64)
    print("state space, chunks of 64:", (out - chunked[0]).abs().max().item())
    return record("state_space", {"key_heads": groups, "value_heads": heads},
                  {"q": c, "k": b, "v": dt[..., None] * x, "g": dt * a}, out)


def convolution() -> dict:
    channels, taps = 20, 4
    x, weight, bias = torch.randn(ROWS, channels), torch.randn(channels, taps), torch.randn(channels)
    out = plain(nemotron.causal_conv1d_fn)(x.T[None], weight, bias, activation="silu")[0].T
    return record("convolution", {"weight": weight.tolist(), "bias": bias.tolist()}, {"x": x}, out)


def main() -> int:
    torch.manual_seed(1)
    torch.set_num_threads(1)
    layers = [delta_net(), vector_decay(), state_space(), convolution()]
    pathlib.Path(sys.argv[1]).write_text("".join(json.dumps(layer) + "\n" for layer in layers))
    return 0


if __name__ == "__main__":
    sys.exit(main())
