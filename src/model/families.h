#pragma once

#include <span>
#include <string_view>

#include "base/function_ref.h"
#include "model/config/config.h"
#include "model/config/config_reader.h"

namespace motley::model {

// Reads what is specific to a family from config.json; the common part (sizes, RoPE, norms) has
// been read before.
struct Family {
  std::string_view model_type;
  void (*read)(ConfigReader& json, Config& config);
  // Where the config does not say:
  double rotated_part = 1;   // of a head
  double rope_base = 10000;  // rope_theta
};

// families/*.cc, one short file each. The table of model types is in families.cc.
void read_qwen3_moe(ConfigReader& json, Config& config);
void read_qwen2_moe(ConfigReader& json, Config& config);
void read_mixtral(ConfigReader& json, Config& config);
void read_olmoe(ConfigReader& json, Config& config);
void read_deepseek_v2(ConfigReader& json, Config& config);
void read_deepseek_v3(ConfigReader& json, Config& config);
void read_gpt_oss(ConfigReader& json, Config& config);
void read_glm4_moe(ConfigReader& json, Config& config);
void read_glm4_moe_lite(ConfigReader& json, Config& config);
void read_qwen3_vl_moe(ConfigReader& json, Config& config);
void read_qwen3_5(ConfigReader& json, Config& config);
void read_qwen3_5_moe(ConfigReader& json, Config& config);
void read_qwen3_next(ConfigReader& json, Config& config);
void read_qwen3(ConfigReader& json, Config& config);
void read_llama(ConfigReader& json, Config& config);

std::span<const Family> families();

// Shared between families: families/shared/.

// Marks the layers whose feed-forward block has experts.
void mark_moe_layers(Config& config, FunctionRef<bool(std::int64_t layer)> has_experts);
// Qwen's rule: every decoder_sparse_step-th layer has experts, but those of mlp_only_layers.
void mark_sparse_moe_layers(ConfigReader& json, Config& config);
// DeepSeek's rule: the first first_k_dense_replace layers are dense; after them every
// moe_layer_freq-th layer has experts.
void mark_moe_layers_behind_dense(ConfigReader& json, Config& config);

// The same by the list mlp_layer_types, of dense and sparse layers; nothing without it.
void mark_listed_moe_layers(ConfigReader& json, Config& config);

// Sigmoid router with correction bias and groups, shared experts: DeepSeek-V3, Kimi-K2 and GLM.
void read_sigmoid_experts(ConfigReader& json, Config& config);

// DeepSeek's latent attention: sizes, score scale with yarn's mscale.
void read_latent_attention(ConfigReader& json, Config& config);

}  // namespace motley::model
