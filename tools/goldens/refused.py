"""Adapters that must be refused, each with the code of the error and the words that its message must hold.

"unsupported": it is clear what the file is, and motley does not do it. "bad_file": it is damaged or contradicts itself
or the base.
"""

import json
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from . import randoms
from .adapters import CONFIG, WEIGHTS
from .conventions import PREFIX, Tensors
from .spec import VOCAB_SIZE, ModelSpec

UNSUPPORTED, BAD_FILE = "unsupported", "bad_file"

RANK = 2
Q_PROJ = f"{PREFIX}model.layers.0.self_attn.q_proj"
EXPERTS = f"{PREFIX}model.layers.0.mlp.experts"


@dataclass(frozen=True)
class Refusal:
    """A sound small adapter on the first q_proj, and what is done to it."""

    name: str
    code: str
    words: tuple[str, ...]
    config: dict[str, Any] = field(default_factory=dict)  # changes; None removes a key
    tensors: Callable[[ModelSpec], Tensors] | None = None  # added to the sound ones, or replacing them by name
    without: tuple[str, ...] = ()  # sound tensors left out
    files: Callable[[Path], None] | None = None  # the last word on the folder


def _values(spec: ModelSpec, name: str, *shape: int) -> torch.Tensor:
    return randoms.normal(f"{spec.seed}/refused/{name}/{shape}", shape, 0.3, torch.float32)


def _hidden(spec: ModelSpec) -> int:
    return spec.config["hidden_size"]


def _q_rows(spec: ModelSpec) -> int:
    gated = spec.family.startswith("qwen3_5")
    return spec.config["num_attention_heads"] * spec.config["head_dim"] * (2 if gated else 1)


def _inner(spec: ModelSpec) -> int:
    return spec.inner


def _q_proj(spec: ModelSpec) -> str:
    if "layer_types" not in spec.config:
        return Q_PROJ
    return f"{PREFIX}model.layers.{spec.config['layer_types'].index('full_attention')}.self_attn.q_proj"


def _sound(spec: ModelSpec) -> Tensors:
    return _pair(spec, _q_proj(spec), _q_rows(spec), _hidden(spec))


def _pair(spec: ModelSpec, module: str, rows: int, columns: int, rank: int = RANK) -> Tensors:
    return {
        f"{module}.lora_A.weight": _values(spec, f"{module}.A", rank, columns),
        f"{module}.lora_B.weight": _values(spec, f"{module}.B", rows, rank),
    }


def _expert_pair(spec: ModelSpec, expert: int = 0) -> Tensors:
    return _pair(spec, f"{EXPERTS}.{expert}.gate_proj", _inner(spec), _hidden(spec))


def _with_value(name: str, value: float) -> Callable[[ModelSpec], Tensors]:
    def tensors(spec: ModelSpec) -> Tensors:
        damaged = _sound(spec)[name].clone()
        damaged[1, 1] = value
        return {name: damaged}

    return tensors


def _one(name: str, shape: Callable[[ModelSpec], tuple[int, ...]]) -> Callable[[ModelSpec], Tensors]:
    return lambda spec: {name: _values(spec, name, *shape(spec))}


def _pickle(folder: Path) -> None:
    """A zip as torch.save writes it, with an empty dictionary inside; the date is fixed."""
    (folder / WEIGHTS).unlink()
    with zipfile.ZipFile(folder / "adapter_model.bin", "w") as archive:
        archive.writestr(zipfile.ZipInfo("adapter_model/data.pkl"), b"\x80\x02}q\x00.")


def _truncate(folder: Path) -> None:
    data = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(data[:-100])


A, B = f"{Q_PROJ}.lora_A.weight", f"{Q_PROJ}.lora_B.weight"
SOUND = (A, B)


def _other_methods() -> list[Refusal]:
    def factors(*leaves: str) -> Callable[[ModelSpec], Tensors]:
        return lambda spec: {f"{Q_PROJ}.{leaf}": _values(spec, leaf, RANK, RANK) for leaf in leaves}

    named = {
        "LOHA": ("hada_w1_a", "hada_w1_b", "hada_w2_a", "hada_w2_b"),
        "LOKR": ("lokr_w1", "lokr_w2"),
        "VERA": ("vera_lambda_b", "vera_lambda_d"),
        "IA3": ("ia3_l",),
        "OFT": ("oft_r",),
        "ADALORA": ("lora_A", "lora_B", "lora_E"),
    }
    return [
        Refusal(f"refused_{kind.lower()}", UNSUPPORTED, (kind,), {"peft_type": kind}, factors(*leaves), SOUND)
        for kind, leaves in named.items()
    ]


def _other_starts() -> list[Refusal]:
    """Adapters that belong to a changed base, unless they were converted when saved (formats.md 1.3)."""
    kinds = ["pissa", "pissa_niter_4", "olora", "corda", "lora_ga", "loftq"]
    return [Refusal(f"refused_init_{k}", UNSUPPORTED, (k,), {"init_lora_weights": k}) for k in kinds]


def _other_variants() -> list[Refusal]:
    token_delta = f"{PREFIX}model.embed_tokens.token_adapter.trainable_tokens_delta"
    norm = f"{PREFIX}model.norm.weight"
    embed, head = f"{PREFIX}model.embed_tokens.weight", f"{PREFIX}lm_head.weight"
    return [
        Refusal(
            "refused_kasa",
            UNSUPPORTED,
            ("kasa",),
            {"kasa_config": {"beta": 0.0001, "gamma": 0.001}},
            _one(f"{Q_PROJ}.lora_diag", lambda _: (RANK,)),
        ),
        Refusal("refused_arrow", UNSUPPORTED, ("arrow",), {"arrow_config": {"top_k": 3, "router_temperature": 1.0}}),
        Refusal(
            "refused_layer_replication", UNSUPPORTED, ("layer_replication",), {"layer_replication": [[0, 2], [1, 3]]}
        ),
        Refusal(
            "refused_bdlora",
            UNSUPPORTED,
            ("bdlora",),
            {
                "use_bdlora": {
                    "target_modules_bd_a": ["q_proj"],
                    "target_modules_bd_b": [],
                    "nblocks": 2,
                    "match_strict": True,
                }
            },
            _one(A, lambda s: (RANK, _hidden(s) // 2)),
        ),
        Refusal(
            "refused_qalora",
            UNSUPPORTED,
            ("qalora",),
            {"use_qalora": True, "qalora_group_size": 8},
            _one(A, lambda s: (RANK, _hidden(s) // 8)),
        ),
        Refusal("refused_alora", UNSUPPORTED, ("alora_invocation_tokens",), {"alora_invocation_tokens": [7, 3]}),
        Refusal(
            "refused_trainable_tokens",
            UNSUPPORTED,
            ("trainable_token",),
            {"trainable_token_indices": {"embed_tokens": [1, 5]}},
            _one(token_delta, lambda s: (2, _hidden(s))),
        ),
        Refusal(
            "refused_modules_to_save_norm",
            UNSUPPORTED,
            ("model.norm",),
            {"modules_to_save": ["norm"]},
            _one(norm, lambda s: (_hidden(s),)),
        ),
        Refusal(
            "refused_embedding_rows",
            UNSUPPORTED,
            ("embed_tokens", str(VOCAB_SIZE), str(VOCAB_SIZE + 2)),
            {"modules_to_save": ["embed_tokens"]},
            _one(embed, lambda s: (VOCAB_SIZE + 2, _hidden(s))),
        ),
        Refusal(
            "refused_head_rows",
            UNSUPPORTED,
            ("lm_head", str(VOCAB_SIZE), str(VOCAB_SIZE - 1)),
            {"modules_to_save": ["lm_head"]},
            _one(head, lambda s: (VOCAB_SIZE - 1, _hidden(s))),
        ),
        Refusal(
            "refused_dora_experts",
            UNSUPPORTED,
            ("layers.0", "experts", "lora_magnitude_vector"),
            {"use_dora": True, "target_modules": ["gate_proj"]},
            lambda s: (
                _expert_pair(s)
                | {f"{EXPERTS}.0.gate_proj.lora_magnitude_vector": _values(s, "magnitude", _inner(s)).abs()}
            ),
            SOUND,
        ),
        Refusal(
            "refused_lora_bias_experts",
            UNSUPPORTED,
            ("layers.0", "experts", "lora_B.bias"),
            {"lora_bias": True, "target_modules": ["gate_proj"]},
            lambda s: _expert_pair(s) | {f"{EXPERTS}.0.gate_proj.lora_B.bias": _values(s, "bias", _inner(s))},
            SOUND,
        ),
        Refusal("refused_pickle", UNSUPPORTED, ("adapter_model.bin",), files=_pickle),
    ]


def _bad_files() -> list[Refusal]:
    return [
        Refusal("refused_a_without_b", BAD_FILE, ("layers.0", "q_proj", "lora_B"), without=(B,)),
        Refusal("refused_b_without_a", BAD_FILE, ("layers.0", "q_proj", "lora_A"), without=(A,)),
        Refusal("refused_no_r", BAD_FILE, (CONFIG,), {"r": None}),
        Refusal("refused_no_lora_alpha", BAD_FILE, ("lora_alpha",), {"lora_alpha": None}),
        Refusal("refused_rank_of_config", BAD_FILE, ("layers.0", "q_proj", "4", "2"), {"r": 4}),
        Refusal(
            "refused_rank_of_factors",
            BAD_FILE,
            ("layers.0", "q_proj"),
            tensors=_one(B, lambda s: (_q_rows(s), RANK + 1)),
        ),
        Refusal("refused_nan", BAD_FILE, ("layers.0", "q_proj", "lora_B"), tensors=_with_value(B, float("nan"))),
        Refusal("refused_infinity", BAD_FILE, ("layers.0", "q_proj", "lora_A"), tensors=_with_value(A, float("-inf"))),
        Refusal(
            "refused_shared_outer_dim",
            BAD_FILE,
            ("layers.0", "experts.w1", "lora_A"),
            {"target_modules": None},
            lambda s: {
                f"{EXPERTS}.w1.lora_A.weight": _values(s, "w1.A", 2, RANK, _hidden(s)),
                f"{EXPERTS}.w1.lora_B.weight": _values(s, "w1.B", s.experts, _inner(s), RANK),
            },
            SOUND,
        ),
        Refusal(
            "refused_unknown_module",
            BAD_FILE,
            ("layers.0", "qq_proj"),
            tensors=lambda s: _pair(s, Q_PROJ.replace("q_proj", "qq_proj"), _q_rows(s), _hidden(s)),
        ),
        Refusal(
            "refused_layer_out_of_range",
            BAD_FILE,
            ("layers.9",),
            tensors=lambda s: _pair(s, Q_PROJ.replace("layers.0", "layers.9"), _q_rows(s), _hidden(s)),
        ),
        Refusal(
            "refused_expert_out_of_range",
            BAD_FILE,
            ("experts.5",),
            {"target_modules": ["q_proj", "gate_proj"]},
            lambda s: _expert_pair(s, s.experts),
        ),
        Refusal(
            "refused_unknown_tensor",
            BAD_FILE,
            ("layers.0", "q_proj", "lora_C"),
            tensors=_one(f"{Q_PROJ}.lora_C.weight", lambda _: (RANK, RANK)),
        ),
        Refusal(
            "refused_width",
            BAD_FILE,
            ("layers.0", "q_proj", "lora_A"),
            tensors=_one(A, lambda s: (RANK, _hidden(s) + 1)),
        ),
        Refusal(
            "refused_height",
            BAD_FILE,
            ("layers.0", "q_proj", "lora_B"),
            tensors=_one(B, lambda s: (_q_rows(s) - 1, RANK)),
        ),
        Refusal(
            "refused_fused_width",
            BAD_FILE,
            ("layers.0", "experts", "lora_A"),
            {"target_modules": [], "target_parameters": ["mlp.experts.down_proj"]},
            lambda s: _pair(s, EXPERTS, _hidden(s), _inner(s) - 1, RANK * s.experts),
            SOUND,
        ),
        Refusal("refused_truncated", BAD_FILE, (WEIGHTS,), files=_truncate),
        Refusal("refused_no_config", BAD_FILE, (CONFIG,), files=lambda folder: (folder / CONFIG).unlink()),
    ]


def _expert_bias() -> list[Refusal]:
    """PEFT 0.21 does write this: a 2-D parameter [E,out] gets [r,out] and [E,r] under the bare name."""
    return [
        Refusal(
            "refused_expert_bias_parameter",
            UNSUPPORTED,
            ("gate_up_proj_bias",),
            {"target_modules": [], "target_parameters": ["mlp.experts.gate_up_proj_bias"]},
            lambda s: _pair(s, EXPERTS, s.experts, 2 * _inner(s)),
            SOUND,
        )
    ]


def _around_a_delta_net() -> list[Refusal]:
    """A convolution of single channels takes no factors."""
    conv1d = f"{PREFIX}model.layers.0.linear_attn.conv1d"
    return [
        Refusal(
            "refused_conv1d",
            UNSUPPORTED,
            ("layers.0", "conv1d"),
            {"target_modules": ["q_proj", "conv1d"]},
            lambda s: {
                f"{conv1d}.lora_A.weight": _values(s, "conv1d.A", RANK, 1, s.config["linear_conv_kernel_dim"]),
                f"{conv1d}.lora_B.weight": _values(s, "conv1d.B", _conv_channels(s), RANK, 1),
            },
        ),
    ]


def _conv_channels(spec: ModelSpec) -> int:
    keys = spec.config["linear_num_key_heads"] * spec.config["linear_key_head_dim"]
    return 2 * keys + spec.config["linear_num_value_heads"] * spec.config["linear_value_head_dim"]


def _refusals(spec: ModelSpec) -> list[Refusal]:
    if spec.name == "qwen3_moe":
        return [*_other_methods(), *_other_starts(), *_other_variants(), *_bad_files()]
    if spec.name == "qwen3_5_moe":
        return _around_a_delta_net()
    return _expert_bias() if spec.name == "gpt_oss" else []


def _make(spec: ModelSpec, refusal: Refusal, folder: Path) -> dict[str, Any]:
    folder.mkdir(parents=True)
    config = {
        "base_model_name_or_path": spec.name,
        "bias": "none",
        "lora_alpha": RANK,
        "peft_type": "LORA",
        "peft_version": "0.21.2",
        "r": RANK,
        "target_modules": ["q_proj"],
        "task_type": "CAUSAL_LM",
    } | refusal.config
    config = {key: value for key, value in config.items() if value is not None}
    tensors = {name: tensor for name, tensor in _sound(spec).items() if name not in refusal.without}
    tensors |= refusal.tensors(spec) if refusal.tensors else {}
    save_file(dict(sorted(tensors.items())), folder / WEIGHTS, metadata={"format": "pt"})
    (folder / CONFIG).write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
    if refusal.files:
        refusal.files(folder)
    return {"adapter": refusal.name, "code": refusal.code, "words": list(refusal.words)}


def make_all(spec: ModelSpec, adapters: Path) -> list[dict[str, Any]]:
    return [_make(spec, refusal, adapters / refusal.name) for refusal in _refusals(spec)]
