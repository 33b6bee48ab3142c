"""Makes one model's folder: weights, adapters, cases, golden.json."""

import copy
import json
import platform
import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import compressed_tensors
import peft
import safetensors
import torch
import transformers
from torch import nn

from . import decode, decided, long_lines, models, quantised, randoms, recurrent, refused, rounded, scoring, sensitivity
from .adapters import Rewritten, Source, make, merged, open_with_peft, rewrite
from .catalog import OTHER_PREFIX, Mix, entries
from .methods.scheme import Rounding, Scheme
from .spec import ModelSpec

# The lengths of a case's prompts are drawn from these ranges (last value excluded).
PROMPT_LENGTHS = ((2, 6), (9, 15), (18, 25))
ATTEMPTS = 1000

# What a case must show, or its prompts are drawn again.
MIN_ADAPTER_MOVE = 5e-2  # adapter against base
MIN_TENSOR_MOVE = 5e-3  # any one tensor, or one expert of it, taken away: 25 times the tolerance


@dataclass
class Result:
    """The numbers of one case."""

    prompts: list[list[int]]
    seed: str
    lines: list[scoring.Line]
    greedy: scoring.Greedy
    router_gap: float
    group_gap: float
    moves: dict[str, float] = field(default_factory=dict)


def _versions(spec: ModelSpec) -> dict[str, str]:
    packer = {"compressed_tensors": compressed_tensors.__version__} if spec.quantised else {}
    return {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "peft": peft.__version__,
        "safetensors": safetensors.__version__,
        "python": ".".join(platform.python_version_tuple()[:2]),
        **packer,
    }


def _prompts(seed: str) -> list[list[int]]:
    lengths = randoms.generator(f"{seed}/lengths")
    return [
        randoms.token_ids(f"{seed}/{i}", models.VOCAB_SIZE, int(lengths.integers(low, high)))
        for i, (low, high) in enumerate(PROMPT_LENGTHS)
    ]


def _trial(model: nn.Module, config: Any, seed: str, every_expert: bool) -> Result | None:
    """The case with the prompts of this seed, or None if it lies too close to a tie or leaves an expert unused."""
    prompts = _prompts(seed)
    with scoring.traced(model, config) as trace:
        lines = [scoring.score(model, prompt) for prompt in prompts]
        if every_expert and any(len(used) < _experts(config) for used in trace.used.values()):
            return None
        if min(line.top_gap for line in lines) < scoring.MIN_TOP_GAP:
            return None
        if min(trace.router_gap, trace.group_gap) < scoring.MIN_ROUTER_GAP:
            return None
        greedy = scoring.greedy(model, prompts[1])
    if greedy.gap < scoring.MIN_GREEDY_GAP or min(trace.router_gap, trace.group_gap) < scoring.MIN_ROUTER_GAP:
        return None
    if recurrent.delta_nets(model) and recurrent.rounding(model, lines) > recurrent.MAX_ROUNDING:
        return None
    return Result(prompts, seed, lines, greedy, trace.router_gap, trace.group_gap)


def _experts(config: Any) -> int:
    config = config.get_text_config()
    names = ("num_local_experts", "num_experts", "n_routed_experts")
    return next(getattr(config, name) for name in names if getattr(config, name, None))


def _draw(model: nn.Module, key: str, enough: Callable[[Result], bool], every_expert: bool) -> Result:
    for attempt in range(ATTEMPTS):
        result = _trial(model, model.config, f"{key}/{attempt}", every_expert)
        if result and enough(result):
            return result
    raise RuntimeError(f"{key}: no prompts away from ties in {ATTEMPTS} attempts")


def _readable(document: dict[str, Any]) -> str:
    """Indented JSON with every list of numbers on one line."""
    text = json.dumps(document, indent=1)
    return re.sub(r"\[[-\d.e,\s]+\]", lambda numbers: " ".join(numbers[0].split()), text) + "\n"


class Maker:
    """Fills one model's folder, entry by entry."""

    def __init__(self, spec: ModelSpec, folder: Path, scratch: Path) -> None:
        self.spec = spec
        self.folder = folder
        self.scratch = scratch
        # What transformers loads: a quantised checkpoint's decoded weights, else the folder itself.
        self.plain = scratch / "plain" if spec.quantised else folder
        self.roundings: dict[str, Rounding] = {}  # of modules' inputs, where activations are quantised
        self.results: dict[str, Result] = {}
        self.sources: dict[str, Source] = {}
        self.first_case: dict[str, str] = {}  # source -> the first case that holds its numbers
        self.cases: list[dict[str, Any]] = []
        self.decided: dict[str, list[dict[str, Any]]] = {}  # by source or mix, until a case has its name
        self.decided_lines: list[str] = []
        self.long: list[str] = []  # lines of longer prompts
        self.long_moves: dict[str, float] = {}

    def run(self) -> None:
        models.clear(self.folder)
        models.save(self.spec, self.plain)
        if self.spec.quantised:
            self._quantise(self.spec.quantised)
        self.base = models.load(self.plain)
        self._base_case()
        for entry in entries(self.spec):
            if isinstance(entry, Source):
                self._source(entry)
            elif isinstance(entry, Rewritten):
                self._rewritten(entry)
            else:
                self._mix(entry)
        (self.folder / "decided.jsonl").write_text("".join(self.decided_lines))
        if self.long:
            (self.folder / long_lines.FILE).write_text("".join(self.long))
        self._write_golden(refused.make_all(self.spec, self.folder / "adapters"))

    def _quantise(self, scheme: Scheme) -> None:
        ranges = rounded.ranges(self.spec, self.plain) if scheme.static_inputs else {}
        self.roundings = quantised.store(scheme, self.spec, self.plain, self.folder, ranges)

    def _round_inputs(self) -> dict[str, Any]:
        """The lines with quantised activations, and what golden.json says of them."""
        if not self.roundings:
            return {}
        sources = [source for source in self.sources.values() if source.published]
        made = rounded.make(self.spec, self.plain, self.folder / "adapters", sources, self.roundings)
        (self.folder / rounded.FILE).write_text("".join(json.dumps(line) + "\n" for line in made.lines))
        return {"rounded_inputs": made.golden}

    def _key(self, case: str) -> str:
        return f"{self.spec.seed}/cases/{case}"

    def _draw_decided(self, case: str, model: nn.Module) -> None:
        self.decided[case] = decided.draw(model, f"{self.spec.seed}/decided/{case}")

    def _draw_long(self, adapter: str | None, model: nn.Module) -> None:
        """Longer prompts for the base, and for the adapters that the model has them for."""
        if self.spec.long_adapters is None or (adapter and adapter not in self.spec.long_adapters):
            return
        lengths = long_lines.ADAPTER_LENGTHS if adapter else long_lines.LENGTHS
        lines = long_lines.draw(model, f"{self.spec.seed}/long/{adapter or 'base'}", lengths)
        self.long += [json.dumps({"adapter": adapter} | long_lines.record(line)) + "\n" for line in lines]
        if adapter is None:
            self.long_moves = long_lines.moves(model, lines)

    def _twin(self, case: str) -> str | None:
        twin = next((spec for spec in models.MODELS if spec.name == self.spec.twin), None)
        if twin is None or case not in ["base", *(entry.name for entry in entries(twin))]:
            return None
        return f"{twin.name}/{case}"

    def _base_case(self) -> None:
        def enough(result: Result) -> bool:
            result.moves = sensitivity.of_base(self.base, self.spec, result.lines)
            return result.moves["weakest_tensor"] > MIN_TENSOR_MOVE

        self.results["base"] = _draw(copy.deepcopy(self.base), self._key("base"), enough, every_expert=True)
        self._draw_decided("base", self.base)
        self._draw_long(None, self.base)
        self._add_case("base", "base", {"adapter": None}, convention=None, same_as=self._twin("base"))

    def _source(self, source: Source) -> None:
        self.sources[source.name] = source
        folder = self._adapter_folder(source)
        make(self.spec, source, self.plain, folder)
        model = open_with_peft(self.plain, folder, source)

        def enough(result: Result) -> bool:
            if source.fill == "zero":
                return True
            base = [scoring.score(self.base, prompt) for prompt in result.prompts]
            result.moves = {"adapter": scoring.largest_move(base, result.lines)}
            if result.moves["adapter"] < MIN_ADAPTER_MOVE:
                return False
            result.moves |= sensitivity.of_adapter(model, self.spec, result.lines)
            return min(result.moves.values()) > MIN_TENSOR_MOVE

        self.results[source.name] = _draw(model, self._key(source.name), enough, source.on_experts)
        self._draw_decided(source.name, model)
        if source.published:
            self._draw_long(source.name, model)
            self.first_case[source.name] = source.name
            self._add_case(
                source.name,
                source.name,
                {"adapter": source.name},
                convention=source.convention,
                same_as=self._twin(source.name),
                load=source.load,
                note=source.note,
            )

    def _adapter_folder(self, source: Source) -> Path:
        return (self.folder / "adapters" if source.published else self.scratch) / source.name

    def _rewritten(self, entry: Rewritten) -> None:
        source = self.sources[entry.source]
        folder = self.folder / "adapters" / entry.name
        rewrite(self.spec, source, entry, self._adapter_folder(source), folder)
        difference = decode.disagreement(
            decode.deltas(self.spec, self._adapter_folder(source), {}), decode.deltas(self.spec, folder, entry.load)
        )
        if difference > 1e-6:
            raise AssertionError(f"{self.spec.name}/{entry.name}: its deltas differ by {difference} from the source's")
        if entry.convention == OTHER_PREFIX:
            self._same_plain_tensors(self._adapter_folder(source), folder)
        result = self.results[source.name]
        if entry.peft_reads:
            model = open_with_peft(self.plain, folder)
            difference = max(
                (scoring.logprob_rows(model, line.token_ids) - line.rows).abs().max().item() for line in result.lines
            )
            if difference > 2e-5:
                raise AssertionError(f"{self.spec.name}/{entry.name}: PEFT reads it {difference} away from its source")
        first = self.first_case.setdefault(source.name, entry.name)
        same_as = f"{self.spec.name}/{first}" if first != entry.name else None
        self._add_case(
            entry.name,
            source.name,
            {"adapter": entry.name},
            convention=entry.convention,
            same_as=same_as,
            load=entry.load,
            note=entry.note,
        )

    def _same_plain_tensors(self, one: Path, other: Path) -> None:
        left, right = decode.plain_tensors(one), decode.plain_tensors(other)
        if left.keys() != right.keys() or not all(torch.equal(left[name], right[name]) for name in left):
            raise AssertionError(f"{other}: other tensors than in {one}")

    def _mix(self, mix: Mix) -> None:
        model = merged(self.plain, [(self.folder / "adapters" / name, scale) for name, scale in mix.parts])

        def enough(result: Result) -> bool:
            base = [scoring.score(self.base, prompt) for prompt in result.prompts]
            result.moves = {"adapter": scoring.largest_move(base, result.lines)}
            return result.moves["adapter"] > MIN_ADAPTER_MOVE

        self.results[mix.name] = _draw(model, self._key(mix.name), enough, every_expert=False)
        self._draw_decided(mix.name, model)
        label = {"adapters": [{"name": name, "scale": scale} for name, scale in mix.parts]}
        self._add_case(mix.name, mix.name, label, convention="mix")

    def _add_case(
        self,
        name: str,
        result_name: str,
        label: dict[str, Any],
        convention: str | None,
        same_as: str | None = None,
        load: dict[str, str] | None = None,
        note: str = "",
    ) -> None:
        result = self.results[result_name]
        file = self.folder / "cases" / f"{name}.jsonl"
        file.parent.mkdir(exist_ok=True)
        file.write_text("".join(json.dumps(line.record(label)) + "\n" for line in result.lines))
        if not load:
            lines = self.decided.pop(result_name, [])
            self.decided_lines += [json.dumps(label | line) + "\n" for line in lines]
        finite = {"router_gap": result.router_gap, "group_gap": result.group_gap}
        self.cases.append(
            {
                "name": name,
                **label,
                "convention": convention,
                "file": f"cases/{name}.jsonl",
                "load": load or {},
                "same_as": same_as,
                "seed": result.seed,
                **{key: scoring.decimal(v) if v != float("inf") else None for key, v in finite.items()},
                "moves": {key: float(f"{v:.3g}") for key, v in result.moves.items()},
                "greedy": {
                    "prompt": result.greedy.prompt,
                    "token_ids": result.greedy.token_ids,
                    "logprobs": result.greedy.logprobs,
                },
                **({"note": note} if note else {}),
            }
        )

    def _write_golden(self, refusals: Sequence[dict[str, Any]]) -> None:
        golden = {
            "model": self.spec.name,
            "family": self.spec.family,
            "versions": _versions(self.spec),
            "seed": self.spec.seed,
            "dtype": self.spec.dtype,
            **({"quantised": self.spec.quantised.method} if self.spec.quantised else {}),
            "experts": "fused" if self.spec.fused or self.spec.family == "gpt_oss" else "per-expert",
            "tolerance": 2e-4,
            **self._round_inputs(),
            **({"long": {"file": long_lines.FILE, "moves": self.long_moves}} if self.long else {}),
            "cases": self.cases,
            "refused": list(refusals),
        }
        if not self.spec.experts:
            del golden["experts"]
        (self.folder / "golden.json").write_text(_readable(golden))


def make_model(spec: ModelSpec, folder: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        Maker(spec, folder, Path(scratch)).run()
