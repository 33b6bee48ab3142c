#!/usr/bin/env python3
"""Writes which experts Hugging Face's routers choose for the greedy answers of the golden set.

    python tools/make_routed_goldens.py --goldens tests/goldens --out tests/engine/routed_experts.jsonl
    python tools/make_routed_goldens.py --goldens tests/goldens --out tests/engine/routed_experts.jsonl --check

A line has `model`, `adapter` (null: the base), `prompt`, `answer`, and `experts`: of each token but the last of the answer,
by layer, the chosen experts in rising order; of a layer without experts none. A router may list its choice in any order.
Needs tools/goldens-requirements.txt in a virtual environment.
"""

import argparse
import json
import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers
from goldens import models
from goldens.adapters import Source, open_with_peft
from goldens.catalog import entries
from goldens.scoring import routers
from torch import nn

# One of each router and each place of layers with experts.
MODELS = (
    "deepseek_v2_groups",
    "deepseek_v3",
    "glm4_moe",
    "gpt_oss",
    "mixtral",
    "olmoe",
    "qwen2_moe",
    "qwen3_5_moe",
    "qwen3_moe",
    "qwen3_next",
)
THREADS = 2


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--goldens", type=Path, required=True, help="the folder of the golden set")
    parser.add_argument("--out", type=Path, required=True, help="the file of choices")
    parser.add_argument("--check", action="store_true", help="make them anew and compare with --out")
    return parser.parse_args()


@contextmanager
def _recorded(model: nn.Module) -> Iterator[dict[int, list[list[int]]]]:
    """By layer: the experts of each token, once the model has run."""
    chosen: dict[int, list[list[int]]] = {}

    def record(layer: int, output: tuple) -> None:
        chosen[layer] = output[2].sort(dim=-1).values.tolist()

    hooks = [
        module.register_forward_hook(
            lambda _m, _args, output, layer=int(re.search(r"\.layers\.(\d+)\.", name)[1]): record(layer, output)
        )
        for name, module in routers(model).items()
    ]
    try:
        yield chosen
    finally:
        for hook in hooks:
            hook.remove()


@torch.no_grad()
def _experts(model: nn.Module, layers: int, prompt: list[int], answer: list[int]) -> list[list[list[int]]]:
    tokens = [*prompt, *answer[:-1]]
    with _recorded(model) as chosen:
        logits = model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0]
    if logits[len(prompt) - 1 :].argmax(-1).tolist() != answer:
        raise AssertionError("the model does not answer as the golden set says")
    return [[chosen[layer][at] if layer in chosen else [] for layer in range(layers)] for at in range(len(tokens))]


def _lines(name: str, goldens: Path) -> Iterator[dict[str, Any]]:
    folder = goldens / name
    config = json.loads((folder / "config.json").read_text())
    layers = config.get("text_config", config)["num_hidden_layers"]
    spec = next(spec for spec in models.MODELS if spec.name == name)
    sources = {entry.name: entry for entry in entries(spec) if isinstance(entry, Source)}
    for case in json.loads((folder / "golden.json").read_text())["cases"]:
        if case["convention"] not in (None, "peft") or case["load"]:
            continue
        adapter = case["adapter"]
        if adapter:
            model = open_with_peft(folder, folder / "adapters" / adapter, sources[adapter])
        else:
            model = models.load(folder)
        prompt, answer = case["greedy"]["prompt"], case["greedy"]["token_ids"]
        experts = _experts(model, layers, prompt, answer)
        yield {"model": name, "adapter": adapter, "prompt": prompt, "answer": answer, "experts": experts}


def main() -> int:
    arguments = _arguments()
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(THREADS)
    made = "".join(json.dumps(line) + "\n" for name in MODELS for line in _lines(name, arguments.goldens))
    if not arguments.check:
        arguments.out.write_text(made)
        return 0
    same = arguments.out.read_text() == made
    print(f"{arguments.out}: {'the same' if same else 'differs'}")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
