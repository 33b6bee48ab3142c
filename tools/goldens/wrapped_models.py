"""Tiny text models inside multimodal ones, as Kimi-K2.5 and Qwen3-VL-MoE are released."""

from dataclasses import dataclass
from typing import Any

import torch

from .configs import DEEPSEEK, MLA_QA, qwen3_moe, yarn
from .delta_models import vision
from .methods.compressed_tensors import PackedIntegers
from .methods.fp8 import Fp8Blocks
from .spec import ModelSpec, Tensors


@dataclass(frozen=True, kw_only=True)
class _ExpertsOnly(PackedIntegers):
    """The router is no Linear in the library that packed the release: no pattern names it, and it is plain."""

    def takes(self, name: str, tensor: torch.Tensor) -> bool:
        return super().takes(name, tensor) and not name.endswith("mlp.gate.weight")


def _kimi_names(tensors: Tensors) -> Tensors:
    """transformers 5.24 writes the text model's layers as `blocks`, and one norm of the projector in another place."""
    released: Tensors = {}
    for name, tensor in tensors.items():
        name = name.replace("language_model.model.blocks.", "language_model.model.layers.")
        released[name.replace("model.mm_projector.", "mm_projector.")] = tensor
    return released


def _transposed_experts(tensors: Tensors) -> Tensors:
    """[E, in, out] in the file; transformers holds and writes [E, out, in]."""
    return {
        name: tensor.transpose(1, 2).contiguous() if ".mlp.experts." in name else tensor
        for name, tensor in tensors.items()
    }


_KIMI_YARN: dict[str, Any] = yarn(50000.0, mscale=1.0, mscale_all_dim=1.0) | {"beta_fast": 1.0}

_KIMI_VISION: dict[str, Any] = {
    "patch_size": 2,
    "pos_emb_height": 2,
    "pos_emb_width": 2,
    "pos_emb_time": 1,
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "hidden_size": 8,
    "intermediate_size": 12,
}

_MROPE: dict[str, Any] = {"rope_type": "default", "mrope_interleaved": True, "mrope_section": [4, 3, 3]}


# Weights of the chosen are renormalised, whatever the config says.
_QWEN_RELEASED: dict[str, Any] = {
    "num_local_experts": None,
    "num_experts": 5,
    "norm_topk_prob": False,
    "rope_parameters": None,
    "rope_theta": 50000.0,
    "rope_scaling": _MROPE,
}


def _without(settings: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key not in keys}


WRAPPED = [
    ModelSpec(
        "kimi_k25",
        "kimi_k25",
        DEEPSEEK
        | {
            "model_type": "deepseek_v3",
            "hidden_size": 64,
            "intermediate_size": 60,
            "moe_intermediate_size": 32,
            "num_hidden_layers": 2,
            "n_routed_experts": 5,
            "n_shared_experts": 1,
            "q_lora_rank": 28,
            "n_group": 1,
            "topk_group": 1,
            "norm_topk_prob": True,
            "routed_scaling_factor": 2.827,
            "num_nextn_predict_layers": 0,
            "rope_parameters": _KIMI_YARN,
        },
        attention=MLA_QA,
        experts=5,
        # Groups of 32 of the experts alone.
        quantised=_ExpertsOnly(
            ignore=(
                "re:.*self_attn.*",
                "re:.*shared_experts.*",
                r"re:.*mlp\.(gate|up|gate_up|down)_proj.*",
                "re:.*lm_head.*",
                "re:vision_tower.*",
                "re:mm_projector.*",
            ),
            shapes=torch.int32,
        ),
        quantised_in_text=True,
        wrapper={"tie_word_embeddings": False, "vision_config": _KIMI_VISION, "projection_hidden_size": 8},
        # A config of 2025, whose model_type only the release's code knows by itself.
        config_as_released={
            "model_type": "kimi_k2",
            "rope_parameters": None,
            "rope_theta": _KIMI_YARN["rope_theta"],
            "rope_scaling": _without(_KIMI_YARN, "rope_theta", "rope_type") | {"type": "yarn"},
        },
        as_released=_kimi_names,
        float32=("e_score_correction_bias",),
    ),
    ModelSpec(
        "qwen3_vl_moe",
        "qwen3_vl_moe",
        qwen3_moe(num_hidden_layers=2, moe_intermediate_size=28, mlp_only_layers=[1])
        | {"rope_parameters": _MROPE | {"rope_theta": 50000.0}},
        fused=True,
        experts=5,
        wrapper={"tie_word_embeddings": False, "vision_config": vision(72, 8) | {"deepstack_visual_indexes": [0]}},
        config_as_released=_QWEN_RELEASED,
        as_released=_transposed_experts,
    ),
    ModelSpec(
        # As Qwen's own releases in FP8, whose experts are apart. Blocks have edges.
        "qwen3_vl_moe_fp8",
        "qwen3_vl_moe",
        qwen3_moe(
            hidden_size=40, num_hidden_layers=1, num_key_value_heads=1, moe_intermediate_size=28, mlp_only_layers=[]
        )
        | {"rope_parameters": _MROPE | {"rope_theta": 50000.0}},
        experts=5,
        wrapper={"tie_word_embeddings": False, "vision_config": vision(40, 8) | {"deepstack_visual_indexes": [0]}},
        config_as_released=_QWEN_RELEASED,
        quantised=Fp8Blocks(
            block=(16, 16),
            scales=torch.bfloat16,
            listed=("lm_head", "model.language_model.layers.0.mlp.gate", "model.visual.merger.linear_fc1"),
        ),
        quantised_apart=True,
    ),
]
