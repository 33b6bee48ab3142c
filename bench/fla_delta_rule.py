#!/usr/bin/env python3
"""Times flash-linear-attention's gated delta rule beside bench_recurrent_state: fla_delta_rule.py

needs a GPU, PyTorch, Triton and the packages fla-core, flash-linear-attention and einops. 16 key heads and 32 value
heads of 128, bf16, as Qwen3.5's layers have them: prompts of one sequence, and one row of many.
"""

import torch
from fla.ops.gated_delta_rule import chunk_gated_delta_rule, fused_recurrent_gated_delta_rule

HEADS, WIDTH = 32, 128


def inputs(sequences: int, rows: int) -> dict:
    unit = lambda: torch.nn.functional.normalize(
        torch.randn(sequences, rows, HEADS, WIDTH, device="cuda"), dim=-1).bfloat16()
    return {"q": unit(), "k": unit(),
            "v": torch.randn(sequences, rows, HEADS, WIDTH, device="cuda", dtype=torch.bfloat16),
            "g": -torch.rand(sequences, rows, HEADS, device="cuda"),
            "beta": torch.rand(sequences, rows, HEADS, device="cuda").bfloat16()}


def microseconds(call, turns: int) -> float:
    """Median of a launch in a graph of `turns`, each with a state of its own."""
    for turn in range(turns):
        call(turn)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for turn in range(turns):
            call(turn)
    times = []
    for _ in range(15):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1000 / turns)
    return sorted(times)[len(times) // 2]


def main() -> None:
    torch.manual_seed(1)
    for rows in (1024, 8192):
        x = inputs(1, rows)
        call = lambda _: chunk_gated_delta_rule(**x, scale=WIDTH**-0.5, output_final_state=True)
        print(f"prompt of {rows}: {microseconds(call, 2):.1f} us", flush=True)
    for sequences in (1, 8, 64, 256):
        turns = 40 if sequences == 1 else 8 if sequences == 8 else 2
        states = torch.zeros(turns, sequences, HEADS, WIDTH, WIDTH, device="cuda")
        x = inputs(sequences, 1)
        call = lambda turn: fused_recurrent_gated_delta_rule(
            **x, scale=WIDTH**-0.5, initial_state=states[turn], output_final_state=True)
        print(f"one row of {sequences}: {microseconds(call, turns):.2f} us", flush=True)


if __name__ == "__main__":
    main()
