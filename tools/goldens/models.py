"""The tiny base models: their configs, their random weights, and how they are stored and loaded."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, PreTrainedModel

from . import randoms
from .configs import DEEPSEEK, GLM4, MIXTRAL, MLA_Q, MLA_QA, qwen3_moe, yarn
from .delta_models import DELTA
from .quantised_delta_models import QUANTISED_DELTA
from .quantised_models import QUANTISED
from .spec import DTYPES, VOCAB_SIZE, ModelSpec, text_name
from .wrapped_models import WRAPPED


def _layer_after_the_last(spec: ModelSpec) -> dict[str, tuple[int, ...]]:
    """A part of the layer that guesses one token more, which GLM's and DeepSeek's releases number as a layer."""
    hidden, layer = spec.config["hidden_size"], f"model.layers.{spec.config['num_hidden_layers']}"
    expert = f"{layer}.mlp.experts.0"
    return {
        f"{layer}.eh_proj.weight": (hidden, 2 * hidden),
        f"{layer}.enorm.weight": (hidden,),
        f"{expert}.down_proj.weight": (hidden, spec.inner),
        f"{layer}.mlp.gate.e_score_correction_bias": (spec.experts,),
        f"{layer}.shared_head.norm.weight": (hidden,),
    }


MODELS = [
    ModelSpec("qwen3_moe", "qwen3_moe", qwen3_moe(), dtype="F32", experts=5),
    ModelSpec(
        "qwen3_moe_sharded",
        "qwen3_moe",
        qwen3_moe(mlp_only_layers=[], decoder_sparse_step=2, num_hidden_layers=4),
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
    ModelSpec("mixtral", "mixtral", MIXTRAL, experts=5),
    ModelSpec("mixtral_fused", "mixtral", MIXTRAL, fused=True, twin="mixtral", experts=5),
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
        DEEPSEEK
        | {
            "n_routed_experts": 5,
            "q_lora_rank": None,
            "topk_method": "greedy",
            "norm_topk_prob": False,
            "routed_scaling_factor": 1.0,
            # mscale differs from mscale_all_dim, so that cos and sin are scaled too.
            "rope_parameters": yarn(10000.0, mscale=1.0, mscale_all_dim=0.707),
        },
        attention=MLA_Q,
        experts=5,
    ),
    ModelSpec(
        "deepseek_v2_groups",
        "deepseek_v2",
        DEEPSEEK
        | {
            "n_routed_experts": 12,
            "q_lora_rank": 28,
            "topk_method": "group_limited_greedy",
            "n_group": 4,
            "topk_group": 2,
            "norm_topk_prob": False,
            "routed_scaling_factor": 3.0,
        },
        attention=MLA_QA,
        experts=12,
    ),
    ModelSpec(
        "deepseek_v3",
        "deepseek_v3",
        DEEPSEEK
        | {
            "n_routed_experts": 12,
            "q_lora_rank": 28,
            "n_group": 4,
            "topk_group": 2,
            "norm_topk_prob": True,
            "routed_scaling_factor": 2.5,
            "num_nextn_predict_layers": 0,
            "rope_parameters": yarn(10000.0, mscale=1.0, mscale_all_dim=1.0),
        },
        attention=MLA_QA,
        experts=12,
    ),
    ModelSpec(
        "deepseek_v3_q_proj",
        "deepseek_v3",
        DEEPSEEK
        | {
            "n_routed_experts": 5,
            "q_lora_rank": None,
            "n_group": 1,
            "topk_group": 1,
            "norm_topk_prob": True,
            "routed_scaling_factor": 1.5,
            "num_nextn_predict_layers": 0,
        },
        attention=MLA_Q,
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
            "rope_parameters": yarn(150000.0, truncate=False),
        },
        experts=5,
    ),
    ModelSpec("glm4_moe", "glm4_moe", GLM4 | {"use_qk_norm": True}, experts=12),
    ModelSpec(
        # As GLM-4.5-Air: no norm on q and k, no scale on the routed experts.
        "glm4_moe_air",
        "glm4_moe",
        GLM4 | {"use_qk_norm": False, "n_routed_experts": 5, "num_hidden_layers": 2, "routed_scaling_factor": 1.0},
        experts=5,
    ),
    ModelSpec(
        # As GLM-4.7-Flash: heads of values are wider than those of keys, and a layer stands after the last one.
        "glm4_moe_lite",
        "glm4_moe_lite",
        DEEPSEEK
        | {
            "hidden_size": 68,
            "moe_intermediate_size": 28,
            "num_hidden_layers": 2,
            "mlp_layer_types": ["sparse", "dense"],
            "n_routed_experts": 5,
            "n_shared_experts": 1,
            "q_lora_rank": 28,
            "qk_nope_head_dim": 12,
            "v_head_dim": 24,
            "n_group": 1,
            "topk_group": 1,
            "norm_topk_prob": True,
            "routed_scaling_factor": 1.8,
            "num_nextn_predict_layers": 1,
        },
        attention=MLA_QA,
        experts=5,
        float32=("e_score_correction_bias",),
        left_aside=_layer_after_the_last,
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
    *DELTA,
    *WRAPPED,
    *QUANTISED,
    *QUANTISED_DELTA,
]


def _value(spec: ModelSpec, name: str, shape: torch.Size) -> torch.Tensor:
    """What a parameter holds: layers answer with values near 1, logits spread over a few units."""
    key = f"{spec.seed}/{text_name(name)}"
    dtype = spec.dtype_of(name) if spec.exact_float32 else DTYPES[spec.dtype]
    path, _, kind = name.rpartition(".")
    module = path.rpartition(".")[2] if kind in ("weight", "bias") else kind
    if module == "e_score_correction_bias":
        return randoms.normal(key, shape, 0.08, torch.float32)
    if module == "sinks":
        return randoms.normal(key, shape, 1.0, dtype)
    if module == "A_log":  # what a token leaves of the state is between a fifth and nearly all
        return randoms.normal(key, shape, 1.0, dtype, mean=math.log(0.12))
    if module == "dt_bias":
        return randoms.normal(key, shape, 0.5, dtype, mean=0.5)
    if spec.norms_add_one and module.endswith("norm") and not name.endswith("linear_attn.norm.weight"):
        high = 1.0 if module in ("q_norm", "k_norm") else 0.5
        return randoms.uniform(key, shape, high - 1.0, high, dtype)
    if module in ("q_norm", "k_norm"):
        return randoms.uniform(key, shape, 0.7, 2.0, dtype)
    if module.endswith("norm"):
        return randoms.uniform(key, shape, 0.5, 1.5, dtype)
    if kind == "bias" or module.endswith("_bias"):
        return randoms.normal(key, shape, 0.5, dtype)
    if module == "embed_tokens":
        return embeddings(key, shape, spec)
    gains = {"lm_head": 2.0, "gate": 1.5, "router": 1.5, "q_proj": 1.3, "k_proj": 1.3, "conv1d": 1.5}
    transposed = spec.family == "gpt_oss" and len(shape) == 3  # [E,in,out]
    fan_in = shape[1] if transposed else shape[-1]
    return randoms.normal(key, shape, gains.get(module, 1.0) / fan_in**0.5, dtype)


def embeddings(key: str, shape: torch.Size, spec: ModelSpec) -> torch.Tensor:
    """Smaller where they are the head too, or one token would take all the probability."""
    std = 0.25 if spec.tied else 1.0
    return randoms.normal(key, shape, std, DTYPES[spec.dtype])


def build(spec: ModelSpec) -> PreTrainedModel:
    """The model in float32, with every parameter and buffer of the checkpoint random."""
    text = {
        "vocab_size": VOCAB_SIZE,
        "max_position_embeddings": spec.positions,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    } | spec.config
    if spec.wrapper is None:
        config = AutoConfig.for_model(spec.family, **text)
        model = AutoModelForCausalLM.from_config(config).float()
    else:
        config = AutoConfig.for_model(spec.family, text_config=text, **spec.wrapper)
        model = AutoModelForImageTextToText.from_config(config).float()
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
    if spec.float32 or spec.left_aside or spec.as_released:
        _weights_as_released(spec, folder / "model.safetensors")
    if spec.config_as_released:
        _config_as_released(spec.config_as_released, folder / "config.json")


def _config_as_released(changes: dict[str, Any], file: Path) -> None:
    config: dict[str, Any] = json.loads(file.read_text())
    text = config.get("text_config", config)
    for key, value in changes.items():
        text.pop(key, None)
        if value is not None:
            text[key] = value
    file.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def _weights_as_released(spec: ModelSpec, file: Path) -> None:
    """A release has float32 among its tensors and layers of other models beside them, which transformers writes not."""
    tensors = load_file(file)
    if spec.as_released:
        tensors = spec.as_released(tensors)
    for name, tensor in tensors.items():
        if spec.dtype_of(name) != tensor.dtype:
            tensors[name] = _value(spec, name, tensor.shape)
    for name, shape in (spec.left_aside(spec) if spec.left_aside else {}).items():
        tensors[name] = _value(spec, name, torch.Size(shape)).to(spec.dtype_of(name))
    save_file(dict(sorted(tensors.items())), file, metadata={"format": "pt"})


def load(folder: Path, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """The stored model, computed in that type by the plain loops of transformers."""
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    kind = AutoModelForImageTextToText if "text_config" in config else AutoModelForCausalLM
    model = kind.from_pretrained(folder, dtype=dtype, attn_implementation="eager", experts_implementation="eager")
    return model.eval()


def clear(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
