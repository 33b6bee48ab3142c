"""The quantised models: a family, sizes that suit the format, and the scheme. Sizes are odd where the format allows."""

from typing import Any

import torch

from .configs import DEEPSEEK, GLM4, MIXTRAL, MLA_QA, qwen3_moe, yarn
from .methods.awq import Awq
from .methods.compressed_tensors import ActOrderIntegers, PackedIntegers
from .methods.compressed_tensors_groups import MxFp4, MxFp8, NvFp4
from .methods.compressed_tensors_scaled import ScaledFloats, ScaledIntegers
from .methods.fp8 import Fp8Blocks, Fp8Tensors
from .methods.gptq import Gptq
from .methods.modelopt import ModelOptFp8, ModelOptNvFp4
from .methods.mxfp4 import GptOssMxFp4
from .methods.scheme import Scheme
from .spec import ModelSpec

_MIXTRAL_PLAIN = ("lm_head", "re:.*block_sparse_moe.gate")


def _small_qwen3_moe(name: str, scheme: Scheme, dtype: str = "BF16", **changes: Any) -> ModelSpec:
    config = qwen3_moe(num_hidden_layers=2, num_key_value_heads=1, mlp_only_layers=[]) | changes
    return ModelSpec(name, "qwen3_moe", config, dtype=dtype, experts=5, quantised=scheme)


def _small_mixtral(name: str, scheme: Scheme, dtype: str = "BF16", **changes: Any) -> ModelSpec:
    config = MIXTRAL | {"hidden_size": 64, "intermediate_size": 64} | changes
    return ModelSpec(name, "mixtral", config, dtype=dtype, experts=5, quantised=scheme)


def _small_olmoe(name: str, scheme: Scheme, dtype: str = "BF16", **changes: Any) -> ModelSpec:
    config = {
        "hidden_size": 96,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 8,
        "num_key_value_heads": 1,
        "num_experts": 5,
        "num_experts_per_tok": 3,
        "norm_topk_prob": False,
        "clip_qkv": 1.5,
        "rms_norm_eps": 0.003,
    }
    return ModelSpec(name, "olmoe", config | changes, dtype=dtype, experts=5, quantised=scheme)


def _small_glm4_moe(name: str, scheme: Scheme, dtype: str = "BF16", **changes: Any) -> ModelSpec:
    config = GLM4 | {
        "hidden_size": 84,
        "intermediate_size": 52,
        "moe_intermediate_size": 36,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "num_key_value_heads": 1,
        "head_dim": 20,
        "n_routed_experts": 5,
        "use_qk_norm": True,
    }
    return ModelSpec(name, "glm4_moe", config | changes, dtype=dtype, experts=5, quantised=scheme)


def _small_deepseek_v3(name: str, scheme: Scheme, dtype: str = "BF16", **changes: Any) -> ModelSpec:
    """Every side that is multiplied with is a multiple of 32; q_a has 96 rows, kv_a 38 and kv_b 72."""
    config = DEEPSEEK | {
        "hidden_size": 64,
        "intermediate_size": 64,
        "moe_intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        # Different ranks: code that takes one for the other fails.
        "kv_lora_rank": 32,
        "q_lora_rank": 96,
        "qk_nope_head_dim": 10,
        "qk_rope_head_dim": 6,
        "v_head_dim": 8,
        "n_routed_experts": 5,
        "n_shared_experts": 1,
        "n_group": 1,
        "topk_group": 1,
        "norm_topk_prob": True,
        "routed_scaling_factor": 1.5,
        "num_nextn_predict_layers": 0,
    }
    return ModelSpec(name, "deepseek_v3", config | changes, dtype=dtype, attention=MLA_QA, experts=5, quantised=scheme)


_INTEGERS = [
    ModelSpec(
        "qwen3_moe_w4a16",
        "qwen3_moe",
        qwen3_moe(
            hidden_size=96,
            intermediate_size=96,
            moe_intermediate_size=64,
            head_dim=24,
            num_hidden_layers=2,
            norm_topk_prob=False,
        ),
        experts=5,
        quantised=PackedIntegers(),
    ),
    ModelSpec(
        # Two groups of modules; a name is matched before a class, wherever it stands.
        "mixtral_w4a16",
        "mixtral",
        MIXTRAL | {"hidden_size": 64, "intermediate_size": 128, "num_key_value_heads": 1, "head_dim": 64},
        experts=5,
        quantised=PackedIntegers(
            groups=(("Linear", 64), ("re:.*self_attn.o_proj$", 128)),
            ignore=_MIXTRAL_PLAIN,
            scales=torch.float16,
            shapes=torch.int32,
        ),
    ),
    # k and v have 12 rows, a word and a half of zero points.
    _small_olmoe("olmoe_w4a16_asymmetric", PackedIntegers(symmetric=False)),
    # Rows of 84, 60, 52 and 36 codes end inside a word; so do the 131 rows of the head, which is quantised too.
    _small_glm4_moe("glm4_moe_w4a16_channel", PackedIntegers(groups=(("Linear", -1),), ignore=("re:.*mlp.gate$",))),
    _small_deepseek_v3("deepseek_v3_w8a16", PackedIntegers(bits=8, scales=torch.float16)),
    _small_mixtral("mixtral_w4a16_actorder", ActOrderIntegers(ignore=_MIXTRAL_PLAIN), num_key_value_heads=1),
    # Codes cross words: rows of 80 and 48 codes, zero points of 20 rows.
    _small_qwen3_moe(
        "qwen3_moe_w3a16", PackedIntegers(bits=3, groups=(("Linear", 16),), symmetric=False), hidden_size=80
    ),
    _small_qwen3_moe(
        "qwen3_moe_w8a8", ScaledIntegers(), moe_intermediate_size=36, intermediate_size=52, mlp_only_layers=[0]
    ),
    _small_olmoe(
        # gate_up is square.
        "olmoe_w8a8_static",
        ScaledIntegers(strategy="tensor", static=True, asymmetric=True),
        hidden_size=72,
        intermediate_size=36,
        num_attention_heads=4,
    ),
]

_FLOATS = [
    ModelSpec(
        "qwen3_moe_fp8",
        "qwen3_moe",
        qwen3_moe(num_hidden_layers=2),
        experts=5,
        quantised=Fp8Blocks(
            block=(32, 64), scales=torch.bfloat16, listed=("lm_head", "model.layers.0.mlp.gate", "model.norm")
        ),
    ),
    ModelSpec(
        # No side of most matrices is a multiple of 128, and kv_a, kv_b and the dense layer have several blocks.
        "deepseek_v3_fp8",
        "deepseek_v3",
        DEEPSEEK
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
        attention=MLA_QA,
        experts=5,
        quantised=Fp8Blocks(),
    ),
    # Blocks of 128 x 128 with an edge of 4 columns, and scales that are powers of two.
    _small_deepseek_v3(
        "deepseek_v3_fp8_ue8m0",
        Fp8Blocks(powers_of_two=True),
        hidden_size=132,
        intermediate_size=36,
        moe_intermediate_size=12,
        q_lora_rank=40,
        kv_lora_rank=20,
        num_attention_heads=3,
        num_key_value_heads=3,
    ),
    ModelSpec(
        # As Mistral's own: a scale for a weight, one for its inputs, embeddings and head plain.
        "llama_fp8_static",
        "llama",
        {
            "hidden_size": 76,
            "intermediate_size": 68,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 1,
            "head_dim": 20,
            "rms_norm_eps": 0.003,
        },
        quantised=Fp8Tensors(listed=("lm_head",)),
    ),
    _small_mixtral(
        "mixtral_fp8_tensor",
        ScaledFloats(strategy="tensor", static=True, ignore=_MIXTRAL_PLAIN),
        hidden_size=68,
        intermediate_size=36,
        head_dim=20,
    ),
    _small_glm4_moe("glm4_moe_fp8_channel", ScaledFloats(scales=torch.bfloat16), hidden_size=68),
    _small_olmoe(
        "olmoe_fp8_block",
        ScaledFloats(strategy="block", block=(32, 64), input_group=64),
        hidden_size=72,
        intermediate_size=36,
        num_attention_heads=4,
    ),
    _small_qwen3_moe("qwen3_moe_nvfp4", NvFp4(), hidden_size=80),
    # q has 160 rows and k 20.
    _small_glm4_moe(
        "glm4_moe_mxfp4",
        MxFp4(),
        hidden_size=64,
        intermediate_size=96,
        moe_intermediate_size=32,
        num_attention_heads=8,
    ),
    _small_deepseek_v3("deepseek_v3_mxfp8", MxFp8()),
    ModelSpec(
        "gpt_oss_mxfp4",
        "gpt_oss",
        {
            # hidden = intermediate, as in the released models: down is square.
            "hidden_size": 64,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 1,
            "head_dim": 20,
            "num_local_experts": 5,
            "num_experts_per_tok": 3,
            "sliding_window": 8,
            "swiglu_limit": 2.0,
            "rms_norm_eps": 0.01,
            "rope_parameters": yarn(150000.0, truncate=False),
        },
        experts=5,
        quantised=GptOssMxFp4(),
    ),
]

_OTHERS = [
    _small_olmoe("olmoe_gptq", Gptq(zero_biases=True, own_file=True), dtype="F16", num_attention_heads=4),
    _small_mixtral(
        "mixtral_gptq_desc_act",
        Gptq(symmetric=False, desc_act=True, common_names=True),
        dtype="F16",
        num_key_value_heads=1,
    ),
    # 32 codes of 3 bits lie in three words.
    _small_qwen3_moe(
        "qwen3_moe_gptq_v2_3bit",
        Gptq(bits=3, symmetric=False, version=2),
        hidden_size=96,
        head_dim=24,
        moe_intermediate_size=32,
    ),
    # A scale for a row. The shared expert has settings of its own, and one projection is not quantised.
    _small_glm4_moe(
        "glm4_moe_gptq_v2_8bit",
        Gptq(
            bits=8,
            group=-1,
            version=2,
            overrides=((r".*layers\.0\.mlp\.down_proj", None), (r".*shared_experts", {"bits": 4, "group_size": 32})),
        ),
        hidden_size=64,
        intermediate_size=60,
        moe_intermediate_size=32,
    ),
    _small_qwen3_moe(
        "qwen3_moe_awq", Awq(own_file=True), dtype="F16", hidden_size=96, head_dim=24, moe_intermediate_size=32
    ),
    _small_mixtral("mixtral_awq", Awq(scales=torch.bfloat16), num_key_value_heads=1),
    _small_qwen3_moe("qwen3_moe_modelopt_fp8", ModelOptFp8(), hidden_size=68, moe_intermediate_size=36),
    _small_deepseek_v3(
        "deepseek_v3_modelopt_nvfp4",
        ModelOptNvFp4(ignore=("lm_head", "*.mlp.gate", "model.layers.0.self_attn*"), own_file=True),
        moe_intermediate_size=48,
    ),
]

QUANTISED = [*_INTEGERS, *_FLOATS, *_OTHERS]
