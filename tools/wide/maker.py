"""Writes a model's files, asks Hugging Face and PEFT what they answer, and records that."""

import json
import math
import platform
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import peft
import torch
import transformers
from goldens import scoring
from goldens.adapters import Source, names_of
from goldens.methods.scheme import Rounding
from goldens.rounding import round_inputs
from peft import PeftModel, get_peft_model_state_dict
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoModelForCausalLM

from . import prompts
from .catalog import Model
from .families import Adapter, checkpoint
from .formats import Plain
from .tensors import Recipe

Tensors = dict[str, torch.Tensor]

TOLERANCE = 1e-4
# Of rounded inputs, in the mean. Exact inputs move much more, and the emulation's own float32 much less.
ROUNDED_TOLERANCE = 5e-3

MIN_MOVE = 5e-2  # of a token's log-probability by an adapter, in the mean


def made_tensors(recipes: list[Recipe], seed: str) -> Tensors:
    return {name: recipe.tensor(seed, name) for recipe in recipes for name in recipe.names()}


def write_checkpoint(model: Model, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    tensors = made_tensors(checkpoint(model.config, model.weights), model.name)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(model.config | model.weights.config(), indent=1))


def write_adapter(model: Model, adapter: Adapter, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    tensors = made_tensors(adapter.recipes(model.config), adapter_seed(model, adapter))
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    (folder / "adapter_config.json").write_text(json.dumps(adapter.config(model.config), indent=1))


def adapter_seed(model: Model, adapter: Adapter) -> str:
    return f"{model.name}/adapters/{adapter.name}"


def _meaning(model: Model, tensors: Tensors) -> tuple[Tensors, dict[str, Rounding]]:
    """The plain checkpoint that a quantised one stands for, in float32 where it was quantised; and how modules round
    their inputs."""
    meant: Tensors = {}
    quantised: dict[str, Tensors] = {}
    for recipe in checkpoint(model.config, model.weights):
        for name, module in zip(recipe.names(), recipe.modules(), strict=True):
            (quantised.setdefault(module, {}) if recipe.part else meant)[recipe.part or name] = tensors[name]
    roundings = {}
    for module, parts in quantised.items():
        name, meant[name] = model.weights.meaning(module, parts)
        rounding = model.weights.rounding(module, parts)
        if rounding is not None:
            roundings[module] = rounding
    return meant, roundings


@dataclass
class Line:
    token_ids: list[int]
    token_logprobs: list[float | None]
    router_gap: float


class Maker:
    """Makes the golden of one model; `scratch` takes gigabytes."""

    def __init__(self, model: Model, scratch: Path) -> None:
        self.model = model
        self.plain = scratch / "plain"
        self.adapters = scratch / "adapters"
        self.roundings: dict[str, Rounding] = {}

    def run(self, folder: Path) -> None:
        self._write_files()
        lines, moves = self._answers()
        errors = self._bf16_errors(lines)
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "lines.jsonl").open("w") as file:
            for adapter, own in lines.items():
                for line in own:
                    record = {"token_ids": line.token_ids, "adapter": adapter, "token_logprobs": line.token_logprobs}
                    file.write(json.dumps(record) + "\n")
        golden = self._golden() | {
            **self._tolerance(lines),
            "router_gap": scoring.decimal(min(line.router_gap for own in lines.values() for line in own)),
            "moves": moves,
            "bf16_mean_error": errors,
        }
        (folder / "golden.json").write_text(_readable(golden) + "\n")

    def _write_files(self) -> None:
        write_checkpoint(self.model, self.plain)
        if self.model.weights.config():
            path = self.plain / "model.safetensors"
            meant, self.roundings = _meaning(self.model, load_file(path))
            save_file(meant, path, metadata={"format": "pt"})
            (self.plain / "config.json").write_text(json.dumps(self.model.config))
        for adapter in self.model.adapters:
            write_adapter(self.model, adapter, self.adapters / adapter.name)

    def _load(self, dtype: torch.dtype, adapter: str | None) -> nn.Module:
        base, told = AutoModelForCausalLM.from_pretrained(
            self.plain,
            dtype=dtype,
            attn_implementation="eager",
            experts_implementation="eager",
            output_loading_info=True,
        )
        wrong = {key: names for key, names in told.items() if names}
        if wrong:
            raise AssertionError(f"{self.model.name}: transformers and the checkpoint differ: {wrong}")
        if adapter is None:
            return base.eval()
        with names_of(Source(adapter, {}, as_named=True)):
            loaded = PeftModel.from_pretrained(base, self.adapters / adapter)
        stored = load_file(self.adapters / adapter / "adapter_model.safetensors")
        held = get_peft_model_state_dict(loaded)
        differing = [n for n in stored.keys() | held.keys() if not _same(stored.get(n), held.get(n))]
        if differing:
            raise AssertionError(f"{self.model.name}/{adapter}: PEFT did not load {sorted(differing)[:4]}")
        return loaded.eval()

    def _answers(self) -> tuple[dict[str | None, list[Line]], dict[str, float]]:
        lines: dict[str | None, list[Line]] = {}
        moves: dict[str, float] = {}
        names = [None, *(adapter.name for adapter in self.model.adapters)]
        for name, lengths in zip(names, self.model.lengths, strict=False):
            drawn = self._prompts(name, lengths)
            loaded = self._reference(name)
            lines[name] = [
                Line(prompt, _token_logprobs(loaded, prompt), prompts.closest_call(loaded, prompt)) for prompt in drawn
            ]
            if isinstance(loaded, PeftModel):
                with loaded.disable_adapter():
                    moves[name] = _mean_difference(loaded, lines[name])
            del loaded
        if min(moves.values()) < MIN_MOVE:
            raise AssertionError(f"{self.model.name}: adapters move too little: {moves}")
        return lines, moves

    def _prompts(self, name: str | None, lengths: tuple[int, ...]) -> list[list[int]]:
        loaded = self._rounding(self._load(torch.float32, name))
        keys = [(f"{self.model.name}/{name}/{length}", length) for length in lengths]
        if self.model.decided:
            tokens = prompts.steady_tokens(loaded, self.roundings)
            return [prompts.decided(loaded, tokens, key, length) for key, length in keys]
        return [prompts.drawn(loaded, key, length) for key, length in keys]

    def _reference(self, adapter: str | None) -> nn.Module:
        """In float32. With inputs that are rounded, an emulation in float64, which adds no noise of its own."""
        loaded = self._load(torch.float32, adapter)
        return self._rounding(loaded.double()) if self.roundings else loaded

    def _rounding(self, loaded: nn.Module) -> nn.Module:
        """The same, whose modules round their inputs if the golden's do."""
        return round_inputs(loaded, self.roundings) if self.roundings else loaded

    def _tolerance(self, lines: dict[str | None, list[Line]]) -> dict[str, Any]:
        """What float32 may differ: in each token, or in the mean where it may round inputs the other way."""
        if not self.roundings:
            return {"tolerance": TOLERANCE}
        noise = max(
            _mean_difference(self._rounding(self._load(torch.float32, name)), own) for name, own in lines.items()
        )
        move = min(_mean_difference(self._load(torch.float32, name), own) for name, own in lines.items())
        if noise > ROUNDED_TOLERANCE / 2 or move < 2 * ROUNDED_TOLERANCE:
            raise AssertionError(f"{self.model.name}: exact inputs move by {move}, float32 by {noise}")
        return {"rounded_inputs": {"tolerance": ROUNDED_TOLERANCE, "moves": {"exact_inputs": move, "float32": noise}}}

    def _bf16_errors(self, lines: dict[str | None, list[Line]]) -> dict[str, float]:
        """Hugging Face's own: the mean over tokens of the distance from float32."""
        errors, total, tokens = {}, 0.0, 0
        for name, own in lines.items():
            count = sum(len(line.token_ids) - 1 for line in own)
            mean = _mean_difference(self._rounding(self._load(torch.bfloat16, name)), own)
            errors[name or "base"] = mean
            total, tokens = total + mean * count, tokens + count
        return errors | {"all": float(f"{total / tokens:.4g}")}

    def _golden(self) -> dict[str, Any]:
        model = self.model
        return {
            "model": model.name,
            "seed": model.name,
            "versions": {
                "torch": torch.__version__,
                "transformers": transformers.__version__,
                "peft": peft.__version__,
                "python": ".".join(platform.python_version_tuple()[:2]),
            },
            "config": model.config | model.weights.config(),
            "tensors": _records(checkpoint(model.config, model.weights), model.name),
            **(_decoded(model) if model.decided and not self.roundings else {}),
            "adapters": {
                adapter.name: {
                    "seed": adapter_seed(model, adapter),
                    "config": adapter.config(model.config),
                    "tensors": _records(adapter.recipes(model.config), adapter_seed(model, adapter)),
                }
                for adapter in model.adapters
            },
        }


def _decoded(model: Model) -> dict[str, Any]:
    """The plain tensors that quantised ones stand for."""
    modules = {recipe.module for recipe in checkpoint(model.config, model.weights) if recipe.part}
    plain = [
        replace(recipe, dtype="F32")
        for recipe in checkpoint(model.config, Plain())
        if recipe.name.removesuffix(".weight") in modules
    ]
    return {"decoded": [recipe.place() for recipe in plain]} if plain else {}


def _records(recipes: list[Recipe], seed: str) -> list[dict[str, Any]]:
    return [recipe.record(seed) for recipe in recipes]


def _same(stored: torch.Tensor | None, held: torch.Tensor | None) -> bool:
    return stored is not None and held is not None and torch.equal(stored.float(), held.float())


def _token_logprobs(loaded: nn.Module, token_ids: list[int]) -> list[float | None]:
    rows = scoring.logprob_rows(loaded, token_ids)[:-1]
    following = rows.gather(1, torch.tensor(token_ids[1:])[:, None])[:, 0].tolist()
    return [None, *map(scoring.decimal, following)]


def _mean_difference(loaded: nn.Module, lines: list[Line]) -> float:
    return float(f"{math.fsum(_differences(loaded, lines)) / sum(len(line.token_ids) - 1 for line in lines):.4g}")


def _differences(loaded: nn.Module, lines: list[Line]) -> Iterator[float]:
    for line in lines:
        answers = _token_logprobs(loaded, line.token_ids)
        yield from (abs(a - b) for a, b in zip(answers[1:], line.token_logprobs[1:], strict=True))


def _readable(value: Any, indent: str = "") -> str:
    """JSON whose objects stand on lines of their own, but those in lists on one line each."""
    inner = indent + " "
    if isinstance(value, dict):
        members = [f"{inner}{json.dumps(key)}: {_readable(each, inner)}" for key, each in value.items()]
        return "{\n" + ",\n".join(members) + f"\n{indent}}}"
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n" + ",\n".join(inner + json.dumps(each) for each in value) + f"\n{indent}]"
    return json.dumps(value)


def make(model: Model, folder: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        Maker(model, Path(scratch)).run(folder)
