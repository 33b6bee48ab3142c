#include "model/config/shapes.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "base/cat.h"
#include "base/json/json.h"

namespace motley::model {
namespace {

constexpr std::array shapes = {
    NamedShape{.name = "qwen3-30b-a3b",
               .config = R"("model_type": "qwen3_moe", "hidden_size": 2048, "vocab_size": 151936,
      "intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": 128,
      "num_experts_per_tok": 8, "norm_topk_prob": true, "num_attention_heads": 32,
      "num_key_value_heads": 4, "head_dim": 128, "rope_theta": 1000000.0, "rms_norm_eps": 1e-6,
      "max_position_embeddings": 40960)",
               .layers = 48},
    NamedShape{.name = "gpt-oss-20b",
               .config = R"("model_type": "gpt_oss", "hidden_size": 2880, "vocab_size": 201088,
      "intermediate_size": 2880, "num_local_experts": 32, "num_experts_per_tok": 4,
      "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "sliding_window": 128,
      "rope_theta": 150000.0, "rope_scaling": {"rope_type": "yarn", "factor": 32.0,
      "beta_fast": 32.0, "beta_slow": 1.0, "truncate": false,
      "original_max_position_embeddings": 4096}, "rms_norm_eps": 1e-5,
      "max_position_embeddings": 131072)",
               .layers = 24,
               .windows = true},
    NamedShape{.name = "mixtral-8x7b",
               .config = R"("model_type": "mixtral", "hidden_size": 4096, "vocab_size": 32000,
      "intermediate_size": 14336, "num_local_experts": 8, "num_experts_per_tok": 2,
      "num_attention_heads": 32, "num_key_value_heads": 8, "rope_theta": 1000000.0,
      "rms_norm_eps": 1e-5, "max_position_embeddings": 32768)",
               .layers = 32},
    NamedShape{.name = "olmoe",
               .config = R"("model_type": "olmoe", "hidden_size": 2048, "vocab_size": 50304,
      "intermediate_size": 1024, "num_experts": 64, "num_experts_per_tok": 8,
      "norm_topk_prob": false, "num_attention_heads": 16, "num_key_value_heads": 16,
      "rope_theta": 10000.0, "rms_norm_eps": 1e-5, "max_position_embeddings": 4096)",
               .layers = 16},
    NamedShape{.name = "deepseek-v2-lite",
               .config = R"("model_type": "deepseek_v2", "hidden_size": 2048, "vocab_size": 102400,
      "intermediate_size": 10944, "moe_intermediate_size": 1408, "n_routed_experts": 64,
      "n_shared_experts": 2, "num_experts_per_tok": 6, "first_k_dense_replace": 1,
      "topk_method": "greedy", "norm_topk_prob": false, "routed_scaling_factor": 1.0,
      "num_attention_heads": 16, "num_key_value_heads": 16, "kv_lora_rank": 512,
      "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "rope_theta": 10000.0,
      "rope_scaling": {"type": "yarn", "factor": 40.0, "beta_fast": 32.0, "beta_slow": 1.0,
      "mscale": 0.707, "mscale_all_dim": 0.707, "original_max_position_embeddings": 4096},
      "rms_norm_eps": 1e-6, "max_position_embeddings": 163840)",
               .layers = 27},
    NamedShape{.name = "glm-4.5-air",
               .config = R"("model_type": "glm4_moe", "hidden_size": 4096, "vocab_size": 151552,
      "intermediate_size": 10944, "moe_intermediate_size": 1408, "n_routed_experts": 128,
      "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 1, "n_group": 1,
      "topk_group": 1, "norm_topk_prob": true, "routed_scaling_factor": 1.0,
      "num_attention_heads": 96, "num_key_value_heads": 8, "head_dim": 128,
      "partial_rotary_factor": 0.5, "attention_bias": true, "use_qk_norm": false,
      "rope_theta": 1000000.0, "rms_norm_eps": 1e-5, "max_position_embeddings": 131072)",
               .layers = 46},
    NamedShape{.name = "qwen3.5-35b-a3b",
               .config = R"("model_type": "qwen3_5_moe_text", "hidden_size": 2048,
      "vocab_size": 248320, "moe_intermediate_size": 512, "num_experts": 256,
      "num_experts_per_tok": 8, "shared_expert_intermediate_size": 512,
      "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256,
      "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
      "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "full_attention_interval": 4,
      "partial_rotary_factor": 0.25, "rope_theta": 10000000.0, "rms_norm_eps": 1e-6,
      "max_position_embeddings": 262144)",
               .layers = 40},
    NamedShape{.name = "qwen3-next-80b-a3b",
               .config = R"("model_type": "qwen3_next", "hidden_size": 2048,
      "vocab_size": 151936, "intermediate_size": 5120, "moe_intermediate_size": 512,
      "num_experts": 512, "num_experts_per_tok": 10, "norm_topk_prob": true,
      "shared_expert_intermediate_size": 512, "num_attention_heads": 16,
      "num_key_value_heads": 2, "head_dim": 256, "linear_num_key_heads": 16,
      "linear_num_value_heads": 32, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
      "linear_conv_kernel_dim": 4, "full_attention_interval": 4, "partial_rotary_factor": 0.25,
      "rope_theta": 10000000.0, "rms_norm_eps": 1e-6, "max_position_embeddings": 262144)",
               .layers = 48},
    NamedShape{.name = "glm-4.7-flash",
               .config = R"("model_type": "glm4_moe_lite", "hidden_size": 2048,
      "vocab_size": 154880, "intermediate_size": 10240, "moe_intermediate_size": 1536,
      "n_routed_experts": 64, "n_shared_experts": 1, "num_experts_per_tok": 4,
      "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1, "norm_topk_prob": true,
      "routed_scaling_factor": 1.8, "num_attention_heads": 20, "num_key_value_heads": 20,
      "q_lora_rank": 768, "kv_lora_rank": 512, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64,
      "v_head_dim": 256, "rope_theta": 1000000.0, "rms_norm_eps": 1e-5,
      "max_position_embeddings": 202752)",
               .layers = 47},
    NamedShape{.name = "kimi-k2.5",
               .config = R"("model_type": "kimi_k2", "hidden_size": 7168, "vocab_size": 163840,
      "intermediate_size": 18432, "moe_intermediate_size": 2048, "n_routed_experts": 384,
      "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 1, "n_group": 1,
      "topk_group": 1, "norm_topk_prob": true, "routed_scaling_factor": 2.827,
      "num_attention_heads": 64, "num_key_value_heads": 64, "q_lora_rank": 1536,
      "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
      "rope_theta": 50000.0, "rope_scaling": {"type": "yarn", "factor": 64.0, "beta_fast": 32.0,
      "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
      "original_max_position_embeddings": 4096}, "rms_norm_eps": 1e-5,
      "max_position_embeddings": 262144)",
               .layers = 61},
    NamedShape{.name = "qwen3-vl-30b-a3b",
               .config = R"("model_type": "qwen3_vl_moe_text", "hidden_size": 2048,
      "vocab_size": 151936, "intermediate_size": 6144, "moe_intermediate_size": 768,
      "num_experts": 128, "num_experts_per_tok": 8, "num_attention_heads": 32,
      "num_key_value_heads": 4, "head_dim": 128, "rope_theta": 5000000.0, "rms_norm_eps": 1e-6,
      "max_position_embeddings": 262144)",
               .layers = 48},
    // Not a released model: small enough for any machine.
    NamedShape{.name = "tiny",
               .config = R"("model_type": "qwen3_moe", "hidden_size": 128, "vocab_size": 512,
      "intermediate_size": 256, "moe_intermediate_size": 64, "num_experts": 16,
      "num_experts_per_tok": 4, "norm_topk_prob": true, "num_attention_heads": 4,
      "num_key_value_heads": 2, "head_dim": 32, "rope_theta": 10000.0, "rms_norm_eps": 1e-6,
      "max_position_embeddings": 16384)",
               .layers = 2},
};

// gpt-oss lists the attention type of each layer, alternating.
std::string layer_types(const NamedShape& shape, std::int64_t layers) {
  if (!shape.windows) return {};
  std::vector<std::string_view> types;
  for (std::int64_t layer = 0; layer < layers; ++layer)
    types.emplace_back(layer % 2 == 0 ? R"("sliding_attention")" : R"("full_attention")");
  return cat(R"(, "layer_types": [)", join(types), "]");
}

}  // namespace

std::span<const NamedShape> named_shapes() { return shapes; }

Result<Config> shape_config(std::string_view name, std::optional<std::int64_t> layers) {
  const auto* const shape = std::ranges::find(shapes, name, &NamedShape::name);
  if (shape == shapes.end()) {
    std::vector<std::string_view> known;
    for (const NamedShape& each : shapes) known.push_back(each.name);
    return Error(ErrorCode::invalid_argument, cat("unknown shape ", quote(name)), "",
                 cat("motley knows ", join(known)));
  }
  const std::int64_t count = layers.value_or(shape->layers);
  if (count < 1 || count > shape->layers)
    return Error(ErrorCode::invalid_argument,
                 cat("the shape ", name, " has no cut of ", count, " layers"), "",
                 cat("use 1 to ", shape->layers));
  MOTLEY_TRY(const json::Value value,
             json::parse(cat("{", shape->config, R"(, "num_hidden_layers": )", count,
                             layer_types(*shape, count), "}"),
                         name));
  MOTLEY_TRY(Config config, parse_config(value, name));
  config.naming.experts_transposed = false;
  return config;
}

}  // namespace motley::model
