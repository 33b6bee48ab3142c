"""The tiny base models: their configs, their random weights, and how they are stored and loaded."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from . import randoms
from .quantised import Fp8Blocks, PackedInt4, Scheme

VOCAB_SIZE = 131

DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}


@dataclass(frozen=True)
class ModelSpec:
    """One folder of the golden set."""

    name: str
    family: str
    config: dict[str, Any]
    dtype: str = "BF16"
    fused: bool = False  # experts stored as 3-D tensors, transformers' names in memory
    max_shard_bytes: int | None = None
    twin: str | None = None  # the model whose weights, prompts and log-probabilities it must share
    attention: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj")
    experts: int = 0
    quantised: Scheme | None = None

    @property
    def seed(self) -> str:
        return self.twin or self.name


def _yarn(theta: float, **extra: Any) -> dict[str, Any]:
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


def _qwen3_moe(**changes: Any) -> dict[str, Any]:
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


_MIXTRAL = {
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

_DEEPSEEK = {
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

_GLM4 = {
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

_MLA_Q = ("q_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj")
_MLA_QA = ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj")

MODELS = [
    ModelSpec("qwen3_moe", "qwen3_moe", _qwen3_moe(), dtype="F32", experts=5),
    ModelSpec(
        "qwen3_moe_sharded",
        "qwen3_moe",
        _qwen3_moe(mlp_only_layers=[], decoder_sparse_step=2, num_hidden_layers=4),
        max_shard_bytes=200_000,
        experts=5,
    ),
    ModelSpec(
        "qwen2_moe",
        "qwen2_moe",
        {
            "hidden_size": 84,
            "intermediate_size": 60,
            "moe_intermediate_size": 48,
            "shared_expert_intermediate_size": 56,
            "num_hidden_layers": 2,
            "num_attention_heads": 3,
            "num_key_value_heads": 1,
            "num_experts": 12,
            "num_experts_per_tok": 3,
            "norm_topk_prob": False,
            "rms_norm_eps": 0.003,
        },
        experts=12,
    ),
    ModelSpec("mixtral", "mixtral", _MIXTRAL, experts=5),
    ModelSpec("mixtral_fused", "mixtral", _MIXTRAL, fused=True, twin="mixtral", experts=5),
    ModelSpec(
        "olmoe",
        "olmoe",
        {
            # 2 x intermediate = hidden, as in the released model: gate_up is square.
            "hidden_size": 96,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "num_experts": 12,
            "num_experts_per_tok": 3,
            "norm_topk_prob": False,
            "clip_qkv": 1.5,
            "rms_norm_eps": 0.003,
        },
        experts=12,
    ),
    ModelSpec(
        "deepseek_v2",
        "deepseek_v2",
        _DEEPSEEK
        | {
            "n_routed_experts": 5,
            "q_lora_rank": None,
            "topk_method": "greedy",
            "norm_topk_prob": False,
            "routed_scaling_factor": 1.0,
            # mscale differs from mscale_all_dim, so that cos and sin are scaled too.
            "rope_parameters": _yarn(10000.0, mscale=1.0, mscale_all_dim=0.707),
        },
        attention=_MLA_Q,
        experts=5,
    ),
    ModelSpec(
        "deepseek_v2_groups",
        "deepseek_v2",
        _DEEPSEEK
        | {
            "n_routed_experts": 12,
            "q_lora_rank": 28,
            "topk_method": "group_limited_greedy",
            "n_group": 4,
            "topk_group": 2,
            "norm_topk_prob": False,
            "routed_scaling_factor": 3.0,
        },
        attention=_MLA_QA,
        experts=12,
    ),
    ModelSpec(
        "deepseek_v3",
        "deepseek_v3",
        _DEEPSEEK
        | {
            "n_routed_experts": 12,
            "q_lora_rank": 28,
            "n_group": 4,
            "topk_group": 2,
            "norm_topk_prob": True,
            "routed_scaling_factor": 2.5,
            "num_nextn_predict_layers": 0,
            "rope_parameters": _yarn(10000.0, mscale=1.0, mscale_all_dim=1.0),
        },
        attention=_MLA_QA,
        experts=12,
    ),
    ModelSpec(
        "deepseek_v3_q_proj",
        "deepseek_v3",
        _DEEPSEEK
        | {
            "n_routed_experts": 5,
            "q_lora_rank": None,
            "n_group": 1,
            "topk_group": 1,
            "norm_topk_prob": True,
            "routed_scaling_factor": 1.5,
            "num_nextn_predict_layers": 0,
        },
        attention=_MLA_Q,
        experts=5,
    ),
    ModelSpec(
        "gpt_oss",
        "gpt_oss",
        {
            # hidden = intermediate, as in the released models: down is square.
            "hidden_size": 72,
            "intermediate_size": 72,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 20,
            "num_local_experts": 5,
            "num_experts_per_tok": 3,
            "sliding_window": 8,
            # Low enough that the clamps act on these weights.
            "swiglu_limit": 2.0,
            "rms_norm_eps": 0.01,
            "rope_parameters": _yarn(150000.0, truncate=False),
        },
        experts=5,
    ),
    ModelSpec("glm4_moe", "glm4_moe", _GLM4 | {"use_qk_norm": True}, experts=12),
    ModelSpec(
        # As GLM-4.5-Air: no norm on q and k, no scale on the routed experts.
        "glm4_moe_air",
        "glm4_moe",
        _GLM4 | {"use_qk_norm": False, "n_routed_experts": 5, "num_hidden_layers": 2, "routed_scaling_factor": 1.0},
        experts=5,
    ),
    ModelSpec(
        "qwen3",
        "qwen3",
        {
            "hidden_size": 72,
            "intermediate_size": 60,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 20,
            "tie_word_embeddings": True,
            "rms_norm_eps": 0.003,
        },
    ),
    ModelSpec(
        "llama",
        "llama",
        {
            "hidden_size": 72,
            "intermediate_size": 60,
            "num_hidden_layers": 2,
            "num_attention_heads": 3,
            "num_key_value_heads": 1,
            "head_dim": 24,
            "rms_norm_eps": 0.003,
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 10000.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 16,
            },
        },
        dtype="F32",
    ),
    ModelSpec(
        "qwen3_moe_w4a16",
        "qwen3_moe",
        _qwen3_moe(
            hidden_size=96,
            intermediate_size=96,
            moe_intermediate_size=64,
            head_dim=24,
            num_hidden_layers=2,
            norm_topk_prob=False,
        ),
        experts=5,
        quantised=PackedInt4((("Linear", 32),), ignore=("lm_head", "re:.*mlp.gate$")),
    ),
    ModelSpec(
        # Two groups of modules; a name is matched before a class, wherever it stands.
        "mixtral_w4a16",
        "mixtral",
        _MIXTRAL | {"hidden_size": 64, "intermediate_size": 128, "num_key_value_heads": 1, "head_dim": 64},
        experts=5,
        quantised=PackedInt4(
            (("Linear", 64), ("re:.*self_attn.o_proj$", 128)),
            ignore=("lm_head", "re:.*block_sparse_moe.gate"),
            scales=torch.float16,
            shapes=torch.int32,
        ),
    ),
    ModelSpec(
        "qwen3_moe_fp8",
        "qwen3_moe",
        _qwen3_moe(num_hidden_layers=2),
        experts=5,
        quantised=Fp8Blocks(
            (32, 64), scales=torch.bfloat16, listed=("lm_head", "model.layers.0.mlp.gate", "model.norm")
        ),
    ),
    ModelSpec(
        # No side of most matrices is a multiple of 128, and kv_a, kv_b and the dense layer have several blocks.
        "deepseek_v3_fp8",
        "deepseek_v3",
        _DEEPSEEK
        | {
            "hidden_size": 136,
            "intermediate_size": 132,
            "moe_intermediate_size": 24,
            "num_hidden_layers": 2,
            "kv_lora_rank": 132,
            "n_routed_experts": 5,
            "n_shared_experts": 1,
            "q_lora_rank": 28,
            "n_group": 1,
            "topk_group": 1,
            "norm_topk_prob": True,
            "routed_scaling_factor": 1.5,
            "num_nextn_predict_layers": 0,
        },
        attention=_MLA_QA,
        experts=5,
        quantised=Fp8Blocks(),
    ),
]


def _value(spec: ModelSpec, name: str, shape: torch.Size) -> torch.Tensor:
    """What a parameter holds: layers answer with values near 1, logits spread over a few units."""
    key = f"{spec.seed}/{name}"
    dtype = DTYPES[spec.dtype]
    path, _, kind = name.rpartition(".")
    module = path.rpartition(".")[2] if kind in ("weight", "bias") else kind
    if module == "e_score_correction_bias":
        return randoms.normal(key, shape, 0.08, torch.float32)
    if module == "sinks":
        return randoms.normal(key, shape, 1.0, dtype)
    if module in ("q_norm", "k_norm"):
        return randoms.uniform(key, shape, 0.7, 2.0, dtype)
    if module.endswith("norm"):
        return randoms.uniform(key, shape, 0.5, 1.5, dtype)
    if kind == "bias" or module.endswith("_bias"):
        return randoms.normal(key, shape, 0.5, dtype)
    if module == "embed_tokens":
        return embeddings(key, shape, spec)
    gains = {"lm_head": 2.0, "gate": 1.5, "router": 1.5, "q_proj": 1.3, "k_proj": 1.3}
    transposed = spec.family == "gpt_oss" and len(shape) == 3  # [E,in,out]
    fan_in = shape[1] if transposed else shape[-1]
    return randoms.normal(key, shape, gains.get(module, 1.0) / fan_in**0.5, dtype)


def embeddings(key: str, shape: torch.Size, spec: ModelSpec) -> torch.Tensor:
    """Smaller where they are the head too, or one token would take all the probability."""
    std = 0.25 if spec.config.get("tie_word_embeddings") else 1.0
    return randoms.normal(key, shape, std, DTYPES[spec.dtype])


def build(spec: ModelSpec) -> PreTrainedModel:
    """The model in float32, with every parameter and buffer of the checkpoint random."""
    config = AutoConfig.for_model(
        spec.family,
        vocab_size=VOCAB_SIZE,
        max_position_embeddings=64,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
        **spec.config,
    )
    model = AutoModelForCausalLM.from_config(config).float()
    state = model.state_dict()
    tied = bool(config.tie_word_embeddings)
    with torch.no_grad():
        for name, tensor in state.items():
            if not (tied and name == "lm_head.weight"):
                tensor.copy_(_value(spec, name, tensor.shape))
    return model


def save(spec: ModelSpec, folder: Path) -> None:
    """Writes config.json and the weights as transformers' save_pretrained does."""
    model = build(spec)
    if spec.dtype != "F32":
        model.to(DTYPES[spec.dtype])
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):  # float32 in the released checkpoints
                buffer.data = _value(spec, name, buffer.shape)
    sharding = {"max_shard_size": spec.max_shard_bytes} if spec.max_shard_bytes else {}
    model.save_pretrained(folder, save_original_format=not spec.fused, **sharding)


def load(folder: Path, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """The stored model, computed in that type by the plain loops of transformers."""
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, attn_implementation="eager", experts_implementation="eager"
    )
    return model.eval()


def clear(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
