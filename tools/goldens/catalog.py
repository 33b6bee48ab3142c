"""Which adapters, mixes and rewritten conventions each model gets."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from . import conventions as c
from .adapters import DOWN_PARAMETER, EXPERT_PARAMETERS, GATE_UP_PARAMETER, Rewritten, Source, ragged_rank
from .delta_models import ATTENTION
from .spec import ModelSpec


@dataclass(frozen=True)
class Mix:
    name: str
    parts: tuple[tuple[str, float], ...]


Entry = Source | Rewritten | Mix


def entries(spec: ModelSpec) -> list[Entry]:
    otherwise = _small_over_quantised if spec.experts else _small_over_quantised_dense
    return _BY_MODEL.get(spec.name, otherwise)(spec)


def _attention(spec: ModelSpec, rank: int = 8, alpha: float = 6, dtype: str = "BF16") -> Source:
    return Source("attention", {"r": rank, "lora_alpha": alpha, "target_modules": list(spec.attention)}, dtype=dtype)


def _experts(rank: int = 3, alpha: float = 2, dtype: str = "BF16") -> Source:
    return Source("experts", _parameters(EXPERT_PARAMETERS, rank, alpha), dtype=dtype)


def _parameters(names: list[str], rank: int, alpha: float) -> dict[str, object]:
    return {"r": rank, "lora_alpha": alpha, "target_modules": [], "target_parameters": names}


def _all_linear(spec: ModelSpec, rank: int = 3, alpha: float = 2, dtype: str = "F16") -> Source:
    parameters = {"target_parameters": EXPERT_PARAMETERS} if spec.experts else {}
    return Source(
        "all_linear", {"r": rank, "lora_alpha": alpha, "target_modules": "all-linear"} | parameters, dtype=dtype
    )


def _router(spec: ModelSpec) -> Source:
    name = "mlp.router.weight" if spec.family == "gpt_oss" else "mlp.gate.weight"
    return Source("router", _parameters([name], 1, 0.8))


def _replaced_biases(bias: Literal["all", "lora_only"]) -> Source:
    """k and v have biases and no factors; q has both; o's bias, if it has one, is the base's or the file's."""
    lora = {"r": 1, "lora_alpha": 1, "target_modules": ["q_proj", "o_proj"], "bias": bias}
    return Source(f"bias_{bias}", lora, dtype="F32")


def _plain_mlps(name: str, parent: str, use_dora: bool = False) -> Source:
    """A dense layer's MLP or the shared experts."""
    lora = {"r": 3, "lora_alpha": 2, "target_modules": rf"{parent}\.(gate|up|down)_proj", "use_dora": use_dora}
    return Source(name, lora, as_named=True)


_MIX = Mix("mix", (("attention", 0.6), ("experts", -1.3)))

OTHER_PREFIX = "other-prefix"


def _other_prefix(source: str) -> Rewritten:
    """Trained on the text model and served with the multimodal one around it, or the other way round."""
    return Rewritten(f"{source}_other_prefix", source, OTHER_PREFIX, c.other_prefix)


def _released_prefix(source: str) -> Rewritten:
    """With the names of a release that transformers calls otherwise."""
    return Rewritten(f"{source}_released_prefix", source, OTHER_PREFIX, c.released_prefix)


def _v4_config(leaves: dict[str, str], parts: tuple[str, ...] = ("gate", "up", "down")) -> dict[str, object]:
    """What PEFT wrote on transformers v4, where every expert projection was a Linear."""
    return {
        "target_modules": [leaves[part] for part in parts],
        "target_parameters": None,
        "rank_pattern": {},
        "alpha_pattern": {},
        "peft_version": "0.17.1",
    }


def _per_expert(peft_reads: bool = True) -> Rewritten:
    """gate and up of an expert share their A, as they do in the fused source."""
    return Rewritten(
        "experts_per_expert",
        "experts",
        "per-expert",
        partial(c.per_expert, leaves=c.LINEAR_LEAVES),
        _v4_config(c.LINEAR_LEAVES),
        peft_reads=peft_reads,
    )


def _v4(leaves: dict[str, str], rename: Callable[[str], str] = lambda m: m, peft_reads: bool = True) -> list[Entry]:
    """gate, up and down of their own, each of rank r; fused they are rank 2r with a block-diagonal B (2.4)."""
    rank, alpha = 3, 2
    source = Source(
        "v4_fused",
        _parameters(EXPERT_PARAMETERS, rank, alpha)
        | {"rank_pattern": {r".*\.gate_up_proj": 2 * rank}, "alpha_pattern": {r".*\.gate_up_proj": 2 * alpha}},
        fill="block_diagonal",
        note="as PEFT saves a per-expert adapter that it loaded on transformers v5",
    )
    rewritten = Rewritten(
        "v4_per_expert",
        source.name,
        "per-expert",
        partial(c.per_expert, leaves=leaves, rename=rename),
        _v4_config(leaves),
        peft_reads=peft_reads,
    )
    return [source, rewritten]


def _swapped(
    source: str, version: str | None, suffix: str = "swapped", load: dict[str, str] | None = None
) -> Rewritten:
    return Rewritten(
        f"{source}_{suffix}",
        source,
        "peft-swapped",
        partial(c.flat, swapped=True, expert_major=False),
        {"peft_version": version},
        load=load or {},
    )


def _common(spec: ModelSpec) -> list[Entry]:
    return [_attention(spec), _experts(), _all_linear(spec), _router(spec), _MIX]


def _shared_outer(spec: ModelSpec, rank: int = 3, alpha: float = 2) -> list[Entry]:
    """gate_up of rank 2r whose A is alike in all experts, which 3-D shared-outer files hold as rank r each."""
    source = Source(
        "shared_outer",
        _parameters(EXPERT_PARAMETERS, rank, alpha)
        | {"rank_pattern": {r".*\.gate_up_proj": 2 * rank}, "alpha_pattern": {r".*\.gate_up_proj": 2 * alpha}},
        fill="shared_outer",
        note="gate_up has rank 2r, a block-diagonal B and one A for all experts",
    )
    return [
        source,
        Rewritten(
            "shared_outer_tinker",
            "shared_outer",
            "tinker",
            c.tinker,
            bare=True,
            note="config with r and lora_alpha only",
        ),
        Rewritten(
            "shared_outer_sglang_split", "shared_outer", "sglang-split", c.sglang_split, _v4_config(c.LINEAR_LEAVES)
        ),
        Rewritten(
            "shared_outer_sglang_fused",
            "shared_outer",
            "sglang-fused",
            c.sglang_fused,
            _v4_config(c.LINEAR_LEAVES) | {"target_modules": ["gate_up_proj", "down_proj"]},
        ),
    ]


def _half(
    part: Literal["gate", "up"], leaves: dict[str, str], rename: Callable[[str], str] = lambda m: m
) -> list[Entry]:
    """Only gate, or only up: PEFT on transformers v5 cannot load such a file, its fused twin gives the numbers."""
    source = Source(
        f"{part}_only_fused",
        _parameters([GATE_UP_PARAMETER], 6, 4),
        fill="gate_only" if part == "gate" else "up_only",
        published=False,
    )
    rewritten = Rewritten(
        f"{part}_only",
        source.name,
        "per-expert",
        partial(c.per_expert, leaves=leaves, rename=rename),
        _v4_config(leaves, (part,)),
    )
    return [source, rewritten]


def _down_only(leaves: dict[str, str], rename: Callable[[str], str] = lambda m: m) -> Rewritten:
    return Rewritten(
        "down_only",
        "down_parameter",
        "per-expert",
        partial(c.per_expert, leaves=leaves, rename=rename),
        _v4_config(leaves, ("down",)),
    )


def _qwen3_moe(spec: ModelSpec) -> list[Entry]:
    return [
        _attention(spec, dtype="F32"),
        *_common(spec)[1:],
        _per_expert(),
        *_v4(c.LINEAR_LEAVES),
        _swapped("experts", "0.18.1"),
        Rewritten(
            "experts_grouped_marked",
            "experts",
            "unsloth-grouped",
            partial(c.flat, swapped=False, expert_major=True),
            {"lora_B_layout": "grouped_by_expert"},
        ),
        Rewritten(
            "experts_rank_marked",
            "experts",
            "unsloth-rank-major",
            partial(c.flat, swapped=False, expert_major=False),
            {"lora_B_layout": "rank_major"},
        ),
        Rewritten(
            "experts_grouped_unmarked",
            "experts",
            "unsloth-grouped",
            partial(c.flat, swapped=False, expert_major=True),
            load={"b-columns": "expert-major"},
        ),
        Rewritten(
            "experts_swapped_grouped",
            "experts",
            "megatron-packed",
            partial(c.flat, swapped=True, expert_major=True),
            load={"b-columns": "expert-major"},
        ),
        Source("gate_up_parameter", _parameters([GATE_UP_PARAMETER], 6, 4)),
        Source("down_parameter", _parameters([DOWN_PARAMETER], 16, 10)),
        *_half("gate", c.LINEAR_LEAVES),
        *_half("up", c.LINEAR_LEAVES),
        _down_only(c.LINEAR_LEAVES),
        *_shared_outer(spec),
        *_ragged(),
        Source("experts_rank_1", _parameters(EXPERT_PARAMETERS, 1, 0.75), dtype="F32"),
        _plain_mlps("dense_layer", r".*\.layers\.1\.mlp"),
        *_dense_kinds(spec),
        Source("zero", _parameters(EXPERT_PARAMETERS, 3, 2) | {"target_modules": ["q_proj"]}, fill="zero"),
    ]


def _ragged() -> list[Entry]:
    """Experts of ranks 1, 3, 6, 1 and 0, per-expert names, one scale for all by alpha_pattern."""
    source = Source("ragged_fused", _parameters(EXPERT_PARAMETERS, 6, 3), fill="ragged", published=False)
    ranks = {e: ragged_rank(e) for e in range(5)}
    config = _v4_config(c.LINEAR_LEAVES) | {
        "rank_pattern": {rf"experts\.{e}\.\w+": r for e, r in ranks.items() if r not in (0, 6)},
        "alpha_pattern": {rf"experts\.{e}\.\w+": r / 2 for e, r in ranks.items() if r not in (0, 6)},
    }
    rewritten = Rewritten(
        "ragged_per_expert",
        source.name,
        "per-expert",
        partial(c.per_expert, leaves=c.LINEAR_LEAVES, rank_of=ragged_rank),
        config,
        note="ranks 1, 3, 6, 1; expert 4 has no tensors",
    )
    return [source, rewritten]


def _dense_kinds(spec: ModelSpec) -> list[Entry]:
    """What PEFT knows of beside plain factors, on Linears and embeddings."""
    attention = list(spec.attention)
    return [
        Source("rslora", {"r": 8, "lora_alpha": 2, "target_modules": attention, "use_rslora": True}),
        Source(
            "patterns",
            {
                "r": 8,
                "lora_alpha": 4.5,
                "target_modules": attention,
                # The first pattern that matches wins, in the order of the file.
                "rank_pattern": {r"layers\.0\.self_attn\.\w+": 3, spec.attention[-1]: 16},
                "alpha_pattern": {spec.attention[0]: 6.5, r"layers\.1\..*": 3},
            },
        ),
        Source("dora", {"r": 3, "lora_alpha": 2, "target_modules": attention, "use_dora": True}),
        Source("lora_bias", {"r": 3, "lora_alpha": 2, "target_modules": attention, "lora_bias": True}),
        Source(
            "one_layer", {"r": 6, "lora_alpha": 5, "target_modules": attention, "layers_to_transform": [1]}, dtype="F16"
        ),
        Source("embeddings", {"r": 3, "lora_alpha": 2, "target_modules": ["embed_tokens"]}),
        Source(
            "embeddings_replaced",
            {"r": 1, "lora_alpha": 1, "target_modules": ["embed_tokens"]},
            new_embeddings=True,
            note="embed_tokens.base_layer.weight in the file replaces the base's, and what is tied to it",
        ),
        Source("lm_head", {"r": 6, "lora_alpha": 4, "target_modules": ["lm_head"]}),
        Source(
            "modules_to_save",
            {"r": 1, "lora_alpha": 1, "target_modules": ["q_proj"], "modules_to_save": ["embed_tokens", "lm_head"]},
        ),
    ]


def _tied_modules_to_save() -> list[Source]:
    """A saved module is its own, whatever it was tied to; with ensure_weight_tying PEFT ties the copies."""
    lora = {"r": 1, "lora_alpha": 1, "target_modules": ["q_proj"]}
    return [
        Source("embeddings_saved", lora | {"modules_to_save": ["embed_tokens"]}),
        Source("head_saved", lora | {"modules_to_save": ["lm_head"]}),
        Source("both_saved", lora | {"modules_to_save": ["embed_tokens", "lm_head"]}),
        Source("both_saved_tied", lora | {"modules_to_save": ["embed_tokens"], "ensure_weight_tying": True}),
    ]


def _qwen2_moe(spec: ModelSpec) -> list[Entry]:
    return [
        *_common(spec),
        *_v4(c.LINEAR_LEAVES, peft_reads=False),
        Source(
            "shared_expert",
            {"r": 6, "lora_alpha": 4, "target_modules": r".*\.mlp\.shared_expert(\.(gate|up|down)_proj|_gate)"},
        ),
        _plain_mlps("shared_expert_dora", r".*\.mlp\.shared_expert", use_dora=True),
        _replaced_biases("all"),
        _replaced_biases("lora_only"),
        Source("dora", {"r": 3, "lora_alpha": 2, "target_modules": list(spec.attention), "use_dora": True}),
    ]


def _v4_mixtral(module: str) -> str:
    return module.replace(".mlp.experts", ".block_sparse_moe.experts")


def _mixtral(spec: ModelSpec) -> list[Entry]:
    return [
        *_common(spec),
        *_v4(c.W_LEAVES, _v4_mixtral),
        Rewritten(
            "experts_per_expert_mlp",
            "experts",
            "per-expert",
            partial(c.per_expert, leaves=c.LINEAR_LEAVES),
            _v4_config(c.LINEAR_LEAVES),
            note="the parent's name of transformers v5 with the leaf names of other families",
        ),
        _swapped("experts", "0.18.0"),
        Source("down_parameter", _parameters([DOWN_PARAMETER], 8, 5)),
        Source("rslora_experts", _parameters(EXPERT_PARAMETERS, 6, 1.2) | {"use_rslora": True}),
        Source(
            "patterns_experts",
            _parameters(EXPERT_PARAMETERS, 3, 2)
            | {"rank_pattern": {r"experts\.down_proj": 1}, "alpha_pattern": {r"layers\.0\.mlp\.experts\.\w+": 1.25}},
        ),
        Source("one_layer_experts", _parameters(["1." + name for name in EXPERT_PARAMETERS], 6, 4)),
        *_half("gate", c.W_LEAVES, _v4_mixtral),
        _down_only(c.W_LEAVES, _v4_mixtral),
        *_shared_outer(spec)[:2],
    ]


def _olmoe(spec: ModelSpec) -> list[Entry]:
    return [
        *_common(spec),
        *_v4(c.LINEAR_LEAVES),
        Source(
            "gate_up_parameter",
            _parameters([GATE_UP_PARAMETER], 3, 2),
            note="square: only peft_version says how it lies",
        ),
        _swapped("experts", None, suffix="swapped"),
        _swapped("gate_up_parameter", "0.18.1"),
        _swapped("gate_up_parameter", None, "swapped_unversioned", {"orientation": "swapped"}),
        _swapped("gate_up_parameter", "0.21.2", "swapped_told", {"orientation": "swapped"}),
    ]


def _deepseek(spec: ModelSpec) -> list[Entry]:
    return [
        *_common(spec),
        *_v4(c.LINEAR_LEAVES),
        _plain_mlps("shared_experts", r".*\.mlp\.shared_experts"),
        _plain_mlps("dense_layer", r".*\.layers\.0\.mlp"),
        Source("kv_a_only", {"r": 3, "lora_alpha": 2, "target_modules": ["kv_a_proj_with_mqa"]}),
        Source("kv_b_only", {"r": 3, "lora_alpha": 2, "target_modules": ["kv_b_proj"]}),
        Source("dora", {"r": 3, "lora_alpha": 2, "target_modules": list(spec.attention), "use_dora": True}),
    ]


def _deepseek_v2_groups(spec: ModelSpec) -> list[Entry]:
    return [
        *_few(spec),
        Source("q_a_only", {"r": 6, "lora_alpha": 4, "target_modules": ["q_a_proj"]}),
        Source("kv_a_only", {"r": 8, "lora_alpha": 4, "target_modules": ["kv_a_proj_with_mqa"]}),
    ]


def _deepseek_v3(spec: ModelSpec) -> list[Entry]:
    return [
        *_deepseek(spec),
        Source("q_a_only", {"r": 3, "lora_alpha": 2, "target_modules": ["q_a_proj"]}),
        Source("q_b_only", {"r": 1, "lora_alpha": 0.7, "target_modules": ["q_b_proj"]}),
    ]


def _tinker_gpt_oss(name: str) -> str:
    return name.replace(".self_attn.", ".attn.").replace("model.lm_head.", "model.model.unembed_tokens.")


def _gpt_oss(spec: ModelSpec) -> list[Entry]:
    shared_outer = Source(
        "shared_outer",
        _parameters(EXPERT_PARAMETERS, 3, 2)
        | {
            "target_modules": [*spec.attention, "lm_head"],
            "rank_pattern": {r".*\.gate_up_proj": 6},
            "alpha_pattern": {r".*\.gate_up_proj": 4},
        },
        fill="shared_outer",
        published=False,
    )
    return [
        *_common(spec),
        Rewritten(
            "experts_unsloth",
            "experts",
            "unsloth-linears",
            c.unsloth_linears,
            {"target_modules": ["gate_up_projs", "down_projs"], "target_parameters": None, "peft_version": "0.17.1"},
        ),
        _swapped("experts", "0.19.0"),
        Source("gate_up_parameter", _parameters([GATE_UP_PARAMETER], 3, 2)),
        Source(
            "down_parameter",
            _parameters([DOWN_PARAMETER], 3, 2),
            load={"orientation": "standard"},
            note="square over a transposed base: transformers' version says how it lies, and is not in the file",
        ),
        _swapped("down_parameter", "0.19.0"),
        _swapped("down_parameter", None, "swapped_unversioned", {"orientation": "swapped"}),
        *_half("gate", c.LINEAR_LEAVES),
        *_half("up", c.LINEAR_LEAVES),
        shared_outer,
        Rewritten(
            "shared_outer_tinker",
            "shared_outer",
            "tinker",
            partial(c.tinker, rename=_tinker_gpt_oss),
            bare=True,
            note="attention under .attn., the head as unembed_tokens",
        ),
        Source("dora", {"r": 3, "lora_alpha": 2, "target_modules": list(spec.attention), "use_dora": True}),
        Source("lora_bias", {"r": 3, "lora_alpha": 2, "target_modules": list(spec.attention), "lora_bias": True}),
        _replaced_biases("all"),
    ]


def _glm4_moe(spec: ModelSpec) -> list[Entry]:
    return [
        *_common(spec),
        *_v4(c.LINEAR_LEAVES),
        _plain_mlps("shared_experts", r".*\.mlp\.shared_experts"),
        _plain_mlps("dense_layer", r".*\.layers\.0\.mlp"),
        Source("dora", {"r": 3, "lora_alpha": 2, "target_modules": list(spec.attention), "use_dora": True}),
        Source("lora_bias", {"r": 3, "lora_alpha": 2, "target_modules": list(spec.attention), "lora_bias": True}),
    ]


def _glm4_moe_lite(spec: ModelSpec) -> list[Entry]:
    return [
        _attention(spec, rank=3, alpha=2),
        _experts(rank=2, alpha=1.5),
        _MIX,
        _per_expert(),
        _plain_mlps("shared_experts", r".*\.mlp\.shared_experts"),
        _router(spec),
    ]


def _kimi_k25(spec: ModelSpec) -> list[Entry]:
    """PEFT gives factors to the vision tower's o_proj, too, unless it is left out."""
    lora = {"target_modules": list(spec.attention), "exclude_modules": r".*vision_tower.*"}
    return [
        Source("attention", {"r": 3, "lora_alpha": 2} | lora),
        _experts(rank=2, alpha=1.5),
        _MIX,
        _other_prefix("attention"),
        _released_prefix("attention"),
        _other_prefix("experts"),
        _released_prefix("experts"),
        _per_expert(peft_reads=False),
    ]


def _qwen3_vl_moe(spec: ModelSpec) -> list[Entry]:
    return [
        _attention(spec, rank=3, alpha=2),
        _experts(rank=2, alpha=1.5),
        _MIX,
        _other_prefix("attention"),
        _other_prefix("experts"),
        _per_expert(peft_reads=False),
        _router(spec),
    ]


def _on_delta_net(spec: ModelSpec, name: str, **kind: bool) -> Source:
    modules = [name for name in spec.attention if name not in ATTENTION]
    return Source(name, {"r": 2, "lora_alpha": 1.5, "target_modules": modules} | kind)


def _qwen3_5_moe(spec: ModelSpec) -> list[Entry]:
    return [
        _attention(spec, rank=3, alpha=2),
        _experts(),
        _MIX,
        _other_prefix("attention"),
        _other_prefix("experts"),
        _per_expert(peft_reads=False),
    ]


def _shared_expert() -> Source:
    lora = {"r": 3, "lora_alpha": 2, "target_modules": r".*\.mlp\.shared_expert(\.(gate|up|down)_proj|_gate)"}
    return Source("shared_expert", lora, as_named=True)


def _qwen3_5_moe_text(spec: ModelSpec) -> list[Entry]:
    return [
        *_qwen3_5_moe(spec)[:-1],
        *_v4(c.LINEAR_LEAVES, peft_reads=False),
        _all_linear(spec, rank=1, alpha=0.75),
        _router(spec),
        _shared_expert(),
        _on_delta_net(spec, "dora", use_dora=True),
        _on_delta_net(spec, "lora_bias", lora_bias=True),
    ]


def _qwen3_5(spec: ModelSpec) -> list[Entry]:
    mlp = {"r": 3, "lora_alpha": 2, "target_modules": ["gate_proj", "up_proj", "down_proj"]}
    everything = {"r": 1, "lora_alpha": 0.75, "target_modules": "all-linear", "exclude_modules": r".*\.visual\..*"}
    return [
        _attention(spec, rank=3, alpha=2),
        Source("mlp", mlp),
        Mix("mix", (("attention", 0.6), ("mlp", -1.3))),
        _other_prefix("attention"),
        Source("all_linear", everything, dtype="F16"),
        _on_delta_net(spec, "dora", use_dora=True),
        _on_delta_net(spec, "lora_bias", lora_bias=True),
        Source("embeddings", {"r": 3, "lora_alpha": 2, "target_modules": ["embed_tokens"]}),
        Source("lm_head", {"r": 3, "lora_alpha": 2, "target_modules": ["lm_head"]}),
    ]


def _qwen3_next(spec: ModelSpec) -> list[Entry]:
    return [
        _attention(spec, rank=3, alpha=2),
        _experts(rank=2, alpha=1.5),
        _MIX,
        *_v4(c.LINEAR_LEAVES),
        _all_linear(spec, rank=1, alpha=0.75),
        _router(spec),
        _shared_expert(),
        _plain_mlps("dense_layer", r".*\.layers\.1\.mlp"),
        _on_delta_net(spec, "dora", use_dora=True),
        _on_delta_net(spec, "lora_bias", lora_bias=True),
    ]


def _small(spec: ModelSpec) -> list[Entry]:
    return [_attention(spec, rank=1, alpha=0.75), _experts(rank=1, alpha=0.75), _MIX]


def _dense(spec: ModelSpec) -> list[Entry]:
    kinds = _dense_kinds(spec)
    if spec.tied:
        kinds = [*(kind for kind in kinds if kind.name != "modules_to_save"), *_tied_modules_to_save()]
    mlp = {"r": 6, "lora_alpha": 3, "target_modules": ["gate_proj", "up_proj", "down_proj"]}
    return [
        _attention(spec),
        Source("mlp", mlp),
        _all_linear(spec, rank=16, alpha=8),
        Mix("mix", (("attention", 0.6), ("mlp", -1.3))),
        *kinds,
    ]


def _few(spec: ModelSpec) -> list[Entry]:
    return [_attention(spec), _experts(rank=6, alpha=4), _MIX]


def _over_quantised(spec: ModelSpec) -> list[Entry]:
    """Adapters see the original activations, and DoRA's norms the decoded weights."""
    return [
        _attention(spec, rank=3, alpha=2),
        _experts(),
        _MIX,
        Source("dora", {"r": 1, "lora_alpha": 1, "target_modules": list(spec.attention), "use_dora": True}),
    ]


def _small_over_quantised(spec: ModelSpec) -> list[Entry]:
    return [_attention(spec, rank=3, alpha=2), _experts(rank=2, alpha=1.5), _MIX, _small_dora(spec)]


def _small_over_quantised_dense(spec: ModelSpec) -> list[Entry]:
    mlp = {"r": 3, "lora_alpha": 2, "target_modules": ["gate_proj", "up_proj", "down_proj"]}
    mix = Mix("mix", (("attention", 0.6), ("mlp", -1.3)))
    return [_attention(spec, rank=3, alpha=2), Source("mlp", mlp), mix, _small_dora(spec)]


def _small_dora(spec: ModelSpec) -> Source:
    return Source("dora", {"r": 1, "lora_alpha": 1, "target_modules": list(spec.attention), "use_dora": True})


def _quantised_delta(spec: ModelSpec) -> list[Entry]:
    return [_attention(spec, rank=2, alpha=1.5), _experts(rank=2, alpha=1.5), _MIX]


def _quantised_delta_dora(spec: ModelSpec) -> list[Entry]:
    """DoRA's norms are of decoded weights, also where ranks cut them in several places."""
    kinds = {"r": 1, "lora_alpha": 1, "target_modules": ["in_proj_qkv", "out_proj", "q_proj"], "use_dora": True}
    return [*_quantised_delta(spec), Source("dora", kinds)]


def _qwen3_moe_w4a16(spec: ModelSpec) -> list[Entry]:
    return [*_over_quantised(spec), _all_linear(spec, rank=1, alpha=1)]


def _deepseek_v3_fp8(spec: ModelSpec) -> list[Entry]:
    return [
        *_over_quantised(spec),
        _plain_mlps("shared_experts", r".*\.mlp\.shared_experts"),
        Source("kv_b_only", {"r": 3, "lora_alpha": 2, "target_modules": ["kv_b_proj"]}),
    ]


def _twin(_: ModelSpec) -> list[Entry]:
    return [_experts()]


_BY_MODEL: dict[str, Callable[[ModelSpec], list[Entry]]] = {
    "qwen3_moe": _qwen3_moe,
    "qwen3_moe_sharded": _few,
    "qwen2_moe": _qwen2_moe,
    "mixtral": _mixtral,
    "mixtral_fused": _twin,
    "olmoe": _olmoe,
    "deepseek_v2": _deepseek,
    "deepseek_v2_groups": _deepseek_v2_groups,
    "deepseek_v3": _deepseek_v3,
    "deepseek_v3_q_proj": _few,
    "gpt_oss": _gpt_oss,
    "glm4_moe": _glm4_moe,
    "glm4_moe_air": _few,
    "glm4_moe_lite": _glm4_moe_lite,
    "kimi_k25": _kimi_k25,
    "qwen3_vl_moe": _qwen3_vl_moe,
    "qwen3_vl_moe_fp8": _small,
    "qwen3_5_moe": _qwen3_5_moe,
    "qwen3_5_moe_text": _qwen3_5_moe_text,
    "qwen3_5": _qwen3_5,
    "qwen3_next": _qwen3_next,
    "qwen3_next_unnormalised": _small,
    "qwen3_5_moe_fp8": _quantised_delta,
    "qwen3_5_moe_w4a16": _quantised_delta_dora,
    "qwen3_5_moe_modelopt_mixed": _quantised_delta,
    "qwen3_5_moe_nvfp4": _small,
    "qwen3_5_moe_gptq": _small,
    "qwen3_5_moe_awq": _small,
    "qwen3_5_moe_mxfp4": _small,
    "qwen3": _dense,
    "llama": _dense,
    "qwen3_moe_w4a16": _qwen3_moe_w4a16,
    "mixtral_w4a16": _over_quantised,
    "qwen3_moe_fp8": _over_quantised,
    "deepseek_v3_fp8": _deepseek_v3_fp8,
}
