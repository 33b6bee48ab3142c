#include "model/families.h"

#include <array>

namespace motley::model {
namespace {

// The families by the model_type of their config.json.
constexpr std::array table = {
    Family{"qwen3_moe", read_qwen3_moe},
    Family{"qwen2_moe", read_qwen2_moe},
    Family{"mixtral", read_mixtral},
    Family{"olmoe", read_olmoe},
    Family{"deepseek_v2", read_deepseek_v2},
    Family{"deepseek_v3", read_deepseek_v3},
    Family{"kimi_k2", read_deepseek_v3},
    Family{"kimi_k25", read_deepseek_v3},
    Family{"gpt_oss", read_gpt_oss},
    Family{"glm4_moe", read_glm4_moe},
    Family{"glm4_moe_lite", read_glm4_moe_lite},
    Family{"qwen3_vl_moe", read_qwen3_vl_moe, 1, 500000},
    Family{"qwen3_vl_moe_text", read_qwen3_vl_moe, 1, 500000},
    Family{"qwen3_5_moe", read_qwen3_5_moe, 0.25},
    Family{"qwen3_5_moe_text", read_qwen3_5_moe, 0.25},
    Family{"qwen3_5", read_qwen3_5, 0.25},
    Family{"qwen3_5_text", read_qwen3_5, 0.25},
    Family{"qwen3_next", read_qwen3_next, 0.25},
    Family{"qwen3", read_qwen3},
    Family{"llama", read_llama},
};

}  // namespace

std::span<const Family> families() { return table; }

}  // namespace motley::model
