"""Configs that several models share, and the projections of latent attention."""

from typing import Any


def yarn(theta: float, **extra: Any) -> dict[str, Any]:
    """rope_parameters of a yarn model whose original length is shorter than the longest prompt."""
    return {
        "rope_type": "yarn",
        "rope_theta": theta,
        "factor": 4.0,
        "original_max_position_embeddings": 16,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        **extra,
    }


def qwen3_moe(**changes: Any) -> dict[str, Any]:
    # rms_norm_eps is large on purpose everywhere: a wrong epsilon must show.
    return {
        "hidden_size": 72,
        "intermediate_size": 60,
        "moe_intermediate_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 20,
        "num_experts": 5,
        "num_experts_per_tok": 3,
        "norm_topk_prob": True,
        "mlp_only_layers": [1],
        "rms_norm_eps": 0.003,
    } | changes


MIXTRAL = {
    "hidden_size": 72,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_local_experts": 5,
    "num_experts_per_tok": 3,
    "sliding_window": None,
    "rms_norm_eps": 0.003,
}

DEEPSEEK = {
    "hidden_size": 84,
    "intermediate_size": 60,
    "moe_intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "num_key_value_heads": 3,
    "num_experts_per_tok": 3,
    "n_shared_experts": 2,
    "kv_lora_rank": 20,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
    "first_k_dense_replace": 1,
    # The norms inside MLA keep 1e-6 whatever this says.
    "rms_norm_eps": 0.01,
}

GLM4 = {
    "hidden_size": 80,
    "intermediate_size": 60,
    "moe_intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 24,
    "n_routed_experts": 12,
    "num_experts_per_tok": 3,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
    "attention_bias": True,
    "num_nextn_predict_layers": 0,
    "rms_norm_eps": 0.003,
}

MLA_Q = ("q_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj")
MLA_QA = ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj")
