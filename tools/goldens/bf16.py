"""How far Hugging Face's own run in bf16 is from its run in float32: what bf16 costs on a case, whoever computes it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from torch import nn

from . import models, scoring
from .adapters import Source, merged, names_of
from .catalog import entries
from .spec import ModelSpec


def deviations(spec: ModelSpec, folder: Path) -> Iterator[tuple[str, float]]:
    """Each case that transformers and PEFT can run from the stored files, with the mean over its tokens."""
    if spec.quantised:
        return
    for case in json.loads((folder / "golden.json").read_text())["cases"]:
        if case["convention"] in (None, "peft", "mix"):
            yield case["name"], _deviation(_model(spec, folder, case), folder / case["file"])


def _model(spec: ModelSpec, folder: Path, case: dict[str, Any]) -> nn.Module:
    if case.get("adapters"):
        parts = [(folder / "adapters" / part["name"], part["scale"]) for part in case["adapters"]]
        return merged(folder, parts).bfloat16()
    base = models.load(folder, torch.bfloat16)
    if case["adapter"] is None:
        return base
    source = next(e for e in entries(spec) if isinstance(e, Source) and e.name == case["adapter"])
    with names_of(source):
        return PeftModel.from_pretrained(base, folder / "adapters" / source.name).eval()


def _deviation(model: nn.Module, file: Path) -> float:
    differences = []
    for text in file.read_text().splitlines():
        line = json.loads(text)
        following = scoring.score(model, line["token_ids"]).token_logprobs
        differences += [abs(a - b) for a, b in zip(following[1:], line["token_logprobs"][1:], strict=True)]
    return sum(differences) / len(differences)
