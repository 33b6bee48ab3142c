"""The models: widths as released ones have them, few layers, few experts of some width, a small vocabulary."""

from dataclasses import dataclass
from typing import Any

from goldens.methods.fp8 import Fp8Blocks
from goldens.methods.mxfp4 import GptOssMxFp4

from .families import Adapter
from .formats import FORMATS, Fp8InBlocks, GptOssMxFp4Blocks, PackedInt4, Plain


@dataclass(frozen=True)
class Model:
    name: str
    config: dict[str, Any]
    adapters: tuple[Adapter, ...]
    weights: Plain = Plain()
    # Lengths of the lines of the base and of each adapter.
    lengths: tuple[tuple[int, ...], ...] = ((3, 40, 200, 600), (7, 100, 350), (5, 130, 400), (16, 250))
    # Routers decide by far: bf16 chooses the same experts, and its error says what the format costs.
    decided: bool = False


def _qwen3_moe(**changes: Any) -> dict[str, Any]:
    """Hidden, heads and top 8 of Qwen3-30B-A3B."""
    return {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "moe_intermediate_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "attention_bias": False,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
    } | changes


def _qwen3_5_moe(**changes: Any) -> dict[str, Any]:
    """Hidden, heads of delta nets and of attention, and the shared expert of Qwen3.5-35B-A3B; a layer of each kind."""
    return {
        "architectures": ["Qwen3_5MoeForCausalLM"],
        "model_type": "qwen3_5_moe_text",
        "hidden_size": 2048,
        "moe_intermediate_size": 256,
        "shared_expert_intermediate_size": 512,
        "num_hidden_layers": 2,
        "layer_types": ["linear_attention", "full_attention"],
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 32,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
        "num_experts": 8,
        "num_experts_per_tok": 3,
        "attention_bias": False,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000000.0, "partial_rotary_factor": 0.25},
    } | changes


def _deepseek_v3(**changes: Any) -> dict[str, Any]:
    """Ranks and heads of DeepSeek-V3's latent attention, its routing and its yarn."""
    return {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "hidden_size": 2048,
        "intermediate_size": 4096,
        "moe_intermediate_size": 512,
        "num_hidden_layers": 3,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "q_lora_rank": 1536,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "first_k_dense_replace": 1,
        "n_routed_experts": 64,
        "n_shared_experts": 1,
        "num_experts_per_tok": 8,
        "n_group": 8,
        "topk_group": 4,
        "norm_topk_prob": True,
        "routed_scaling_factor": 2.5,
        "scoring_func": "sigmoid",
        "topk_method": "noaux_tc",
        "num_nextn_predict_layers": 0,
        "attention_bias": False,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "rope_scaling": {
            "type": "yarn",
            "factor": 40.0,
            "original_max_position_embeddings": 4096,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
        },
    } | changes


def _gpt_oss(**changes: Any) -> dict[str, Any]:
    """Hidden, heads, window and yarn of gpt-oss."""
    return {
        "architectures": ["GptOssForCausalLM"],
        "model_type": "gpt_oss",
        "hidden_size": 2880,
        "intermediate_size": 768,
        "num_hidden_layers": 2,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "num_local_experts": 32,
        "num_experts_per_tok": 4,
        "sliding_window": 128,
        "layer_types": ["sliding_attention", "full_attention"],
        "swiglu_limit": 7.0,
        "attention_bias": True,
        "rms_norm_eps": 1e-5,
        "rope_theta": 150000.0,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 32.0,
            "original_max_position_embeddings": 4096,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "truncate": False,
        },
    } | changes


def _glm4_moe(**changes: Any) -> dict[str, Any]:
    """Hidden and heads of GLM-4.5-Air, with GLM-4.5's norms of q and k and its scale."""
    return {
        "architectures": ["Glm4MoeForCausalLM"],
        "model_type": "glm4_moe",
        "hidden_size": 4096,
        "intermediate_size": 3072,
        "moe_intermediate_size": 384,
        "num_hidden_layers": 3,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "partial_rotary_factor": 0.5,
        "first_k_dense_replace": 1,
        "n_routed_experts": 32,
        "n_shared_experts": 1,
        "num_experts_per_tok": 8,
        "n_group": 1,
        "topk_group": 1,
        "norm_topk_prob": True,
        "routed_scaling_factor": 2.5,
        "num_nextn_predict_layers": 0,
        "attention_bias": True,
        "use_qk_norm": True,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1000000.0,
    } | changes


_COMMON = {
    "vocab_size": 1024,
    "hidden_act": "silu",
    "max_position_embeddings": 163840,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}

_ATTENTION_16 = Adapter("attention", 16, ("attention",))
_ATTENTION_40 = Adapter("attention", 40, ("attention",))
_EXPERTS_16 = Adapter("experts", 16, ("experts",))
_EXPERTS_40 = Adapter("experts", 40, ("experts",))
_ROUTED_40 = Adapter("experts", 40, ("router", "experts"))
_DENSE_40 = Adapter("dense", 40, ("dense", "shared"))

_SHORT = ((3, 40, 200), (7, 100), (5, 130))

# An input that float32 rounds the other way changes all tokens behind it in its line.
_MANY_SHORT = (tuple(range(8, 20)), tuple(range(10, 20)), tuple(range(10, 20)))

# What Qwen3.5's own releases in FP8 leave plain.
_QWEN3_5_PLAIN = (
    "lm_head",
    *(f"model.layers.0.linear_attn.{module}" for module in ("conv1d", "in_proj_a", "in_proj_b")),
    *(f"model.layers.0.mlp.{module}" for module in ("gate", "shared_expert_gate")),
)

_FEW_EXPERTS = _COMMON | _qwen3_moe(num_experts=8, num_experts_per_tok=3)

MODELS = [
    # Small enough for a machine without a GPU.
    Model(
        "qwen3_moe_few_experts",
        _FEW_EXPERTS,
        (_ATTENTION_16, _ROUTED_40),
        lengths=_SHORT,
    ),
    Model("qwen3_5_moe_few_experts", _COMMON | _qwen3_5_moe(), (_ATTENTION_16, _ROUTED_40), lengths=_SHORT),
    Model(
        "qwen3_5_moe_fp8_block",
        _COMMON | _qwen3_5_moe(num_hidden_layers=1, layer_types=["linear_attention"]),
        (_ATTENTION_16, _ROUTED_40),
        Fp8InBlocks(Fp8Blocks(listed=_QWEN3_5_PLAIN), rounds_inputs=True),
        _MANY_SHORT,
        decided=True,
    ),
    Model("qwen3_moe", _COMMON | _qwen3_moe(), (_ATTENTION_16, _ROUTED_40)),
    Model("deepseek_v3", _COMMON | _deepseek_v3(), (_ATTENTION_40, _EXPERTS_16, _DENSE_40)),
    Model("gpt_oss", _COMMON | _gpt_oss(), (_ATTENTION_16, _ROUTED_40)),
    Model("glm4_moe", _COMMON | _glm4_moe(), (_ATTENTION_40, _EXPERTS_16, _DENSE_40)),
    Model(
        "qwen3_moe_w4a16",
        _COMMON | _qwen3_moe(num_experts=64),
        (_ATTENTION_16, _EXPERTS_40),
        PackedInt4(128),
    ),
    Model(
        "deepseek_v3_w4a16",  # groups of 32 as Kimi-K2's, though all of it is packed
        _COMMON | _deepseek_v3(n_routed_experts=32, num_hidden_layers=2),
        (_ATTENTION_16, _EXPERTS_40),
        PackedInt4(32),
    ),
    Model(
        "deepseek_v3_fp8",
        _COMMON | _deepseek_v3(n_routed_experts=32, num_hidden_layers=2),
        (_ATTENTION_16, _EXPERTS_40),
        Fp8InBlocks(Fp8Blocks()),
    ),
    Model(
        "gpt_oss_mxfp4",
        _COMMON | _gpt_oss(num_local_experts=8, num_hidden_layers=1, layer_types=["sliding_attention"]),
        (_ATTENTION_16, _ROUTED_40),
        GptOssMxFp4Blocks(GptOssMxFp4()),
        _SHORT,
        decided=True,
    ),
    *(
        Model(
            f"qwen3_moe_{name}",
            # The next layer would round many inputs the other way, where this one did with one.
            _FEW_EXPERTS | {"num_hidden_layers": 1},
            (_ATTENTION_16, _ROUTED_40),
            weights,
            _MANY_SHORT if weights.rounds_inputs else _SHORT,
            decided=True,
        )
        for name, weights in FORMATS.items()
    ),
]
