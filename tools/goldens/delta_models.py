"""Tiny models of the families whose layers are mostly gated delta nets."""

from typing import Any

from .spec import ModelSpec

# One of four layers attends, as in the releases, but not the last: the head then reads a delta net's answer.
LAYER_TYPES = ["linear_attention", "linear_attention", "full_attention", "linear_attention"]

# Prompts of 300 tokens, and a continuation.
POSITIONS = 384

# What the text model's config has in releases of Qwen3.5, for layers and programs that are no part of it.
RELEASED = {"mtp_num_hidden_layers": 1, "mamba_ssm_dtype": "float32", "attn_output_gate": True}

# What the releases of Qwen3.5 store in F32 among BF16.
FLOAT32 = ("linear_attn.A_log", "linear_attn.norm.weight")

DELTA_NET = ("in_proj_qkv", "in_proj_z", "in_proj_a", "in_proj_b", "out_proj")
GROUPED_DELTA_NET = ("in_proj_qkvz", "in_proj_ba", "out_proj")
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")


def rope(factor: float, pairs: int) -> dict[str, Any]:
    """Rows of positions for pictures, which are all alike for text."""
    third = pairs // 3
    return {
        "rope_type": "default",
        "rope_theta": 10000.0,
        "partial_rotary_factor": factor,
        "mrope_interleaved": True,
        "mrope_section": [pairs - 2 * third, third, third],
    }


QWEN3_5_MOE: dict[str, Any] = {
    "hidden_size": 44,
    "num_hidden_layers": 4,
    "layer_types": LAYER_TYPES,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 24,
    "rope_parameters": rope(0.25, 3),
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 6,
    "linear_key_head_dim": 12,
    "linear_value_head_dim": 20,
    "linear_conv_kernel_dim": 4,
    "num_experts": 5,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 28,
    "rms_norm_eps": 0.003,
}


# Tied, whatever the text model's config says.
QWEN3_5: dict[str, Any] = {
    "hidden_size": 52,
    "intermediate_size": 68,
    "num_hidden_layers": 4,
    "layer_types": LAYER_TYPES,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 28,
    "rope_parameters": rope(0.5, 7),
    "linear_num_key_heads": 3,
    "linear_num_value_heads": 6,
    "linear_key_head_dim": 20,
    "linear_value_head_dim": 12,
    "linear_conv_kernel_dim": 4,
    "tie_word_embeddings": False,
    "rms_norm_eps": 0.02,  # a tied head makes sharp logits, which would show more of float32's rounding
}

QWEN3_NEXT: dict[str, Any] = {
    "hidden_size": 56,
    "intermediate_size": 44,
    "num_hidden_layers": 4,
    "full_attention_interval": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 24,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25},
    "linear_num_key_heads": 3,
    "linear_num_value_heads": 9,
    "linear_key_head_dim": 20,
    "linear_value_head_dim": 12,
    "linear_conv_kernel_dim": 4,
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "norm_topk_prob": True,
    "mlp_only_layers": [1],
    "decoder_sparse_step": 1,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 28,
    "rms_norm_eps": 0.003,
}

# As the release has it, which is older than `layer_types` and `rope_parameters`.
QWEN3_NEXT_RELEASED: dict[str, Any] = {
    "layer_types": None,
    "full_attention_interval": 2,
    "rope_parameters": None,
    "rope_theta": 10000.0,
    "partial_rotary_factor": 0.25,
}


def vision(hidden: int, width: int = 16) -> dict[str, Any]:
    return {
        "depth": 1,
        "hidden_size": width,
        "intermediate_size": 20,
        "num_heads": 2,
        "patch_size": 2,
        "temporal_patch_size": 1,
        "spatial_merge_size": 1,
        "num_position_embeddings": 4,
        "out_hidden_size": hidden,
    }


def _mtp(spec: ModelSpec) -> dict[str, tuple[int, ...]]:
    """Of the layer that guesses one token more: its experts are one tensor each, where the trunk's are fused."""
    hidden, heads, head = (spec.config[key] for key in ("hidden_size", "num_key_value_heads", "head_dim"))
    shapes: dict[str, tuple[int, ...]] = {
        "mtp.fc.weight": (hidden, 2 * hidden),
        "mtp.norm.weight": (hidden,),
        "mtp.pre_fc_norm_embedding.weight": (hidden,),
        "mtp.pre_fc_norm_hidden.weight": (hidden,),
        "mtp.layers.0.input_layernorm.weight": (hidden,),
        "mtp.layers.0.post_attention_layernorm.weight": (hidden,),
        "mtp.layers.0.self_attn.k_norm.weight": (head,),
        "mtp.layers.0.self_attn.k_proj.weight": (heads * head, hidden),
    }
    for e in range(spec.experts):
        expert = f"mtp.layers.0.mlp.experts.{e}"
        shapes[f"{expert}.gate_proj.weight"] = (spec.inner, hidden)
        shapes[f"{expert}.up_proj.weight"] = (spec.inner, hidden)
        shapes[f"{expert}.down_proj.weight"] = (hidden, spec.inner)
    if spec.experts:
        shapes["mtp.layers.0.mlp.gate.weight"] = (spec.experts, hidden)
    return shapes


def _spec(name: str, family: str, config: dict[str, Any], **more: Any) -> ModelSpec:
    """What all of them have."""
    long_adapters = ("attention", "experts" if config.get("num_experts") else "mlp")
    defaults: dict[str, Any] = {
        "attention": DELTA_NET + ATTENTION,
        "experts": config.get("num_experts", 0),
        "norms_add_one": True,
        "positions": POSITIONS,
        "long_adapters": long_adapters,
    }
    return ModelSpec(name, family, config, **(defaults | more))


DELTA = [
    _spec(
        # As released: a text model inside a multimodal one.
        "qwen3_5_moe",
        "qwen3_5_moe",
        QWEN3_5_MOE | RELEASED,
        fused=True,
        wrapper={"tie_word_embeddings": False, "vision_config": vision(44)},
        float32=FLOAT32,
        left_aside=_mtp,
    ),
    # As transformers saves the text model alone.
    _spec("qwen3_5_moe_text", "qwen3_5_moe_text", QWEN3_5_MOE, twin="qwen3_5_moe"),
    _spec(
        "qwen3_5",
        "qwen3_5",
        QWEN3_5 | RELEASED,
        wrapper={"tie_word_embeddings": True, "vision_config": vision(52)},
        config_as_released={"layer_types": None, "full_attention_interval": 3},
        float32=FLOAT32,
        exact_float32=True,
        left_aside=_mtp,
    ),
    _spec(
        "qwen3_next",
        "qwen3_next",
        QWEN3_NEXT,
        attention=GROUPED_DELTA_NET + ATTENTION,
        config_as_released=QWEN3_NEXT_RELEASED,
    ),
    _spec(
        "qwen3_next_unnormalised",
        "qwen3_next",
        QWEN3_NEXT
        | {
            "hidden_size": 36,
            "num_hidden_layers": 2,
            "norm_topk_prob": False,
            "mlp_only_layers": [],
            "decoder_sparse_step": 2,
        },
        attention=GROUPED_DELTA_NET + ATTENTION,
        long_adapters=(),
    ),
]
