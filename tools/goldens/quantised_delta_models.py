"""Quantised models with gated delta nets, as exports of Qwen3.5 have them: one Linear an expert, names of the multimodal
wrapper, in_proj_a and in_proj_b mostly plain, a vision tower and a layer of `mtp` beside the text model."""

from typing import Any

import torch

from .delta_models import ATTENTION, DELTA_NET, FLOAT32, QWEN3_5_MOE, RELEASED, rope, vision
from .methods.awq import Awq
from .methods.compressed_tensors import PackedIntegers
from .methods.compressed_tensors_groups import MxFp4, NvFp4
from .methods.fp8 import Fp8Blocks
from .methods.gptq import Gptq
from .methods.modelopt import ModelOptMixed
from .methods.scheme import Scheme
from .spec import ModelSpec

EXPERTS = 4
LAYERS = "model.language_model.layers"
DELTA_LAYER, ATTENTION_LAYER = f"{LAYERS}.0.linear_attn", f"{LAYERS}.1.self_attn"

# Every side that is multiplied with is a multiple of 16, and one of 32 where heads of values have 16
# numbers. Heads end inside the groups and blocks of rows.
_CONFIG: dict[str, Any] = (
    QWEN3_5_MOE
    | RELEASED
    | {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "layer_types": ["linear_attention", "full_attention"],
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "rope_parameters": rope(0.5, 4),
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 12,
        "num_experts": EXPERTS,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 32,
    }
)

# Ends of the names of modules that exports leave plain.
_PLAIN = ("lm_head", ".in_proj_a", ".in_proj_b", ".mlp.gate", ".shared_expert_gate")
_PLAIN_PATTERNS = ("lm_head", "re:.*mlp.gate$", "re:.*shared_expert_gate$", "re:.*visual.*")
# The same by name.
_PLAIN_NAMES = (
    "lm_head",
    "model.language_model.embed_tokens",
    f"{DELTA_LAYER}.conv1d",
    f"{DELTA_LAYER}.in_proj_a",
    f"{DELTA_LAYER}.in_proj_b",
    *(f"{LAYERS}.{layer}.mlp.{module}" for layer in (0, 1) for module in ("gate", "shared_expert_gate")),
    "model.visual.blocks.0.attn.qkv",
    "model.visual.merger.linear_fc1",
    "mtp.layers.0.mlp.gate",
)


def _mtp(spec: ModelSpec) -> dict[str, tuple[int, ...]]:
    """A part of the layer that guesses one token more: an expert, which is quantised as the trunk's are, and a norm."""
    expert, hidden = "mtp.layers.0.mlp.experts.0", spec.config["hidden_size"]
    return {
        f"{expert}.gate_proj.weight": (spec.inner, hidden),
        f"{expert}.down_proj.weight": (hidden, spec.inner),
        "mtp.layers.0.mlp.gate.weight": (spec.experts, hidden),
        "mtp.norm.weight": (hidden,),
    }


def _mixed_layers() -> tuple[tuple[str, str], ...]:
    """FP8 in all of attention and delta nets, NVFP4 in experts and shared experts."""
    dense = [f"{DELTA_LAYER}.{module}" for module in DELTA_NET] + [f"{ATTENTION_LAYER}.{m}" for m in ATTENTION]
    parents = [f"experts.{e}" for e in range(EXPERTS)] + ["shared_expert"]
    projections = [
        f"{LAYERS}.{layer}.mlp.{parent}.{module}"
        for layer in (0, 1)
        for parent in parents
        for module in ("gate_proj", "up_proj", "down_proj")
    ]
    return (*((name, "FP8") for name in dense), *((name, "NVFP4") for name in projections))


def _spec(name: str, scheme: Scheme, dtype: str = "BF16", **changes: Any) -> ModelSpec:
    config = _CONFIG | changes
    return ModelSpec(
        f"qwen3_5_moe_{name}",
        "qwen3_5_moe",
        config,
        dtype=dtype,
        attention=DELTA_NET + ATTENTION,
        experts=EXPERTS,
        quantised=scheme,
        norms_add_one=True,
        wrapper={"tie_word_embeddings": False, "vision_config": vision(config["hidden_size"], 8)},
        float32=FLOAT32,
        left_aside=_mtp,
    )


QUANTISED_DELTA = [
    # As Qwen's own releases, in smaller blocks: heads of queries, keys and values end inside them.
    _spec("fp8", Fp8Blocks(block=(16, 16), scales=torch.bfloat16, plain=_PLAIN, listed=_PLAIN_NAMES)),
    # A pattern of the wrapper's names has groups of its own.
    _spec(
        "w4a16",
        PackedIntegers(
            groups=(("Linear", 16), (r"re:model\.language_model\.layers\.\d+\.self_attn\.o_proj$", 32)),
            ignore=(*_PLAIN_NAMES, r"re:^mtp\..*"),
        ),
    ),
    # in_proj_a and in_proj_b are quantised too.
    _spec(
        "modelopt_mixed",
        ModelOptMixed(layers=_mixed_layers(), ignore=("lm_head", "mtp*", "model.visual*", "*.mlp.gate")),
    ),
    _spec("nvfp4", NvFp4(ignore=(*_PLAIN_PATTERNS, r"re:.*linear_attn\.in_proj_[ab]$", "re:^mtp.*"))),
    _spec(
        "gptq",
        Gptq(
            group=16,
            plain=_PLAIN,
            overrides=((r".*visual.*", None), (r".*mtp.*", None), (r".*linear_attn\.out_proj", {"bits": 8})),
        ),
        dtype="F16",
    ),
    _spec(
        "awq",
        Awq(group=16, plain=_PLAIN, listed=("in_proj_a", "in_proj_b", "gate", "visual", "mtp")),
        dtype="F16",
    ),
    _spec(
        "mxfp4",
        MxFp4(ignore=(*_PLAIN_PATTERNS, r"re:.*linear_attn\.in_proj_[ab]$")),
        linear_value_head_dim=16,
    ),
]
