"""Adapters made by PEFT with random values, and adapters rewritten from them."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from torch import nn

from . import randoms
from .conventions import DOWN, GATE_UP, Experts, Halves, Tensors, read_standard
from .models import embeddings, load
from .spec import DTYPES, ModelSpec, text_name

GATE_UP_PARAMETER = "mlp.experts.gate_up_proj"
DOWN_PARAMETER = "mlp.experts.down_proj"
EXPERT_PARAMETERS = [GATE_UP_PARAMETER, DOWN_PARAMETER]

# How expert factors are constrained, so that a convention that says less than PEFT's can hold them.
Fill = Literal["free", "gate_only", "up_only", "block_diagonal", "shared_outer", "ragged", "zero"]

# Fills whose gate_up holds gate in the first half of its ranks and up in the second.
BLOCK_DIAGONAL = ("block_diagonal", "shared_outer")

WEIGHTS = "adapter_model.safetensors"
CONFIG = "adapter_config.json"


@dataclass(frozen=True)
class Source:
    """An adapter that PEFT makes."""

    name: str
    lora: dict[str, Any]
    convention: str = "peft"
    dtype: str = "BF16"
    fill: Fill = "free"
    published: bool = True  # else it only exists to be rewritten
    # PEFT 0.21 on transformers v5 takes any target that ends in gate_proj, up_proj or down_proj for the fused experts,
    # dense layers' and shared experts' Linears included; with this set the names mean what they say.
    as_named: bool = False
    load: dict[str, str] = field(default_factory=dict)  # what the files cannot tell, in the words of CONTRACT.md
    new_embeddings: bool = False  # the saved copy of the adapted embeddings differs from the base's
    note: str = ""

    @property
    def on_experts(self) -> bool:
        return any(".experts." in name for name in self.lora.get("target_parameters") or [])


@dataclass(frozen=True)
class Rewritten:
    """The same deltas in a convention that is not what PEFT 0.21 writes."""

    name: str
    source: str
    convention: str
    tensors: Callable[[Experts], Tensors]
    config: dict[str, Any] = field(default_factory=dict)  # changes to the source's config; None removes a key
    bare: bool = False  # the config keeps r and lora_alpha only
    load: dict[str, str] = field(default_factory=dict)  # what the files cannot tell, in the words of CONTRACT.md
    peft_reads: bool = False  # PEFT loads it too, and must agree
    note: str = ""


def ragged_rank(expert: int) -> int:
    """Ranks 1, 3, 6, 1, 0, ...: an expert of rank 0 has no tensors at all."""
    return (1, 3, 6, 1, 0)[expert % 5]


def make(spec: ModelSpec, source: Source, base: Path, folder: Path) -> None:
    """Creates the adapter with PEFT, fills it, and saves it by PEFT's own save_pretrained."""
    lora = source.lora
    with names_of(source):
        model = get_peft_model(load(base), LoraConfig(task_type="CAUSAL_LM", **lora))
    key = f"{spec.seed}/adapters/{source.name}"
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            value = _value(f"{key}/{text_name(name)}", name, parameter, DTYPES[source.dtype])
            if value is not None:
                parameter.copy_(value)
            tied_copy = lora.get("ensure_weight_tying") and ".modules_to_save." in name
            if tied_copy or (source.new_embeddings and name.endswith("embed_tokens.base_layer.weight")):
                parameter.copy_(embeddings(f"{key}/{name}", parameter.shape, spec))
        _constrain(spec, source, model)
    model.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    # PEFT sorts the patterns too, where the first that matches wins: keep the order that was asked for.
    config = read_config(folder) | {key: lora[key] for key in ("rank_pattern", "alpha_pattern") if key in lora}
    tensors = {n: t.to(_stored_dtype(spec, source, n)) for n, t in load_file(folder / WEIGHTS).items()}
    write(folder, tensors, config, spec)


def _stored_dtype(spec: ModelSpec, source: Source, name: str) -> torch.dtype:
    """PEFT saves an embedding or head beside its factors; that copy stays exact."""
    return DTYPES[spec.dtype if name.endswith(".base_layer.weight") else source.dtype]


def _value(key: str, name: str, parameter: nn.Parameter, dtype: torch.dtype) -> torch.Tensor | None:
    """Deltas of about the size of the weights themselves; None leaves a parameter of the base alone."""
    shape = parameter.shape
    if "lora_magnitude_vector" in name:
        return (parameter * randoms.uniform(key, shape, 0.6, 1.5, torch.float32)).to(dtype).float()
    if "lora_embedding_A" in name:
        return randoms.normal(key, shape, 1.0, dtype)
    if "lora_embedding_B" in name:
        return randoms.normal(key, shape, 0.5 / shape[1] ** 0.5, dtype)
    if ".modules_to_save." in name:
        std = 2.0 / shape[1] ** 0.5 if "lm_head" in name else 1.0
        return randoms.normal(key, shape, std, dtype)
    if "lora_A" in name:
        return randoms.normal(key, shape, 1.0 / shape[-1] ** 0.5, dtype)
    if "lora_B" in name and name.endswith(".bias"):
        return randoms.normal(key, shape, 0.3, dtype)
    if "lora_B" in name:
        return randoms.normal(key, shape, 0.5, dtype)
    if name.endswith(".bias") and parameter.requires_grad:  # the base's own, which bias="all" and "lora_only" train
        return randoms.normal(key, shape, 0.5, dtype)
    return None


def _constrain(spec: ModelSpec, source: Source, model: nn.Module) -> None:
    if source.fill == "free":
        return
    if source.fill == "zero":
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.zero_()
        return
    for module in model.modules():
        if type(module).__name__ == "ParamWrapper":
            a = module.lora_A["default"].weight
            b = module.lora_B["default"].weight
            _constrain_experts(
                source.fill,
                module.parameter_name == "gate_up_proj",
                a.view(spec.experts, -1, a.shape[-1]),
                b.view(b.shape[0], -1, spec.experts),
                halves(spec, block_diagonal=False),
            )


def _constrain_experts(fill: Fill, is_gate_up: bool, a: torch.Tensor, b: torch.Tensor, halves: Halves) -> None:
    """a [E,r,in] and b [out,r,E] are views into the parameters."""
    by_expert = b.permute(2, 0, 1)  # [E,out,r]
    if fill in ("gate_only", "up_only"):
        halves.rows(by_expert, up=fill == "gate_only").zero_()
    elif fill == "ragged":
        for e in range(a.shape[0]):
            by_expert[e, :, ragged_rank(e) :].zero_()
    if fill == "shared_outer":
        outer = a if is_gate_up else by_expert
        outer.copy_(outer[:1].expand_as(outer).clone())
    if fill in BLOCK_DIAGONAL and is_gate_up:
        half = a.shape[1] // 2
        halves.rows(by_expert, up=False)[:, :, half:].zero_()
        halves.rows(by_expert, up=True)[:, :, :half].zero_()


def halves(spec: ModelSpec, block_diagonal: bool) -> Halves:
    return Halves(interleaved=spec.family == "gpt_oss", block_diagonal=block_diagonal)


def rewrite(spec: ModelSpec, source: Source, rewritten: Rewritten, source_folder: Path, folder: Path) -> None:
    parameters = source.lora.get("target_parameters") or []
    only = {GATE_UP_PARAMETER: GATE_UP, DOWN_PARAMETER: DOWN}[parameters[0]] if len(parameters) == 1 else None
    experts = read_standard(
        load_file(source_folder / WEIGHTS),
        spec.experts,
        halves(spec, block_diagonal=source.fill in BLOCK_DIAGONAL),
        only,
    )
    config = read_config(source_folder) | rewritten.config
    config = {key: value for key, value in config.items() if key not in rewritten.config or value is not None}
    if rewritten.bare:
        config = {key: config[key] for key in ("r", "lora_alpha")}
    folder.mkdir(parents=True)
    write(folder, rewritten.tensors(experts), config, spec)


def read_config(folder: Path) -> dict[str, Any]:
    return json.loads((folder / CONFIG).read_text())


def write(folder: Path, tensors: Tensors, config: dict[str, Any], spec: ModelSpec) -> None:
    """PEFT writes its sets in an order that changes from run to run; here they are sorted."""
    config = {key: sorted(v) if isinstance(v, list) else v for key, v in sorted(config.items())}
    if "base_model_name_or_path" in config:
        config["base_model_name_or_path"] = spec.name
    own = {n: t.clone(memory_format=torch.contiguous_format) for n, t in sorted(tensors.items())}  # no shared storage
    save_file(own, folder / WEIGHTS, metadata={"format": "pt"})
    (folder / CONFIG).write_text(json.dumps(config, indent=1) + "\n")


def open_with_peft(base: Path, folder: Path, source: Source | None = None) -> PeftModel:
    """A fresh base with the stored adapter on it, in float32."""
    with names_of(source):
        return PeftModel.from_pretrained(load(base), folder).eval()


@contextmanager
def names_of(source: Source | None) -> Iterator[None]:
    """Switches PEFT's conversion of target names from transformers v4 to v5 off where the source says `as_named`."""
    conversion = "peft.utils.transformers_weight_conversion.convert_peft_config_for_transformers"
    with mock.patch(conversion, lambda *_, **__: None) if source and source.as_named else nullcontext():
        yield


def merged(base: Path, parts: list[tuple[Path, float]]) -> nn.Module:
    """The base with `sum of scale * delta` added to its weights in float32, adapter by adapter, by PEFT's own merge."""
    model = load(base)
    for folder, scale in parts:
        wrapped = PeftModel.from_pretrained(model, folder)
        for module in wrapped.modules():
            if isinstance(getattr(module, "scaling", None), dict) and "default" in module.scaling:
                module.scaling["default"] *= scale
        model = wrapped.merge_and_unload()
    return model.eval()
