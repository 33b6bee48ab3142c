// Qwen2-MoE: biases on q, k and v; a shared expert behind a gate of its own.

#include "model/families.h"

namespace motley::model {

void read_qwen2_moe(ConfigReader& json, Config& config) {
  read_qwen3_moe(json, config);
  GroupedConfig& attention = config.grouped();
  attention.qk_norm = QkNorm::none;
  attention.qkv_bias = json.boolean_or("qkv_bias", true);
  attention.o_bias = false;

  config.moe.shared_intermediate = json.integer("shared_expert_intermediate_size");
  config.moe.shared_gate = true;
  config.naming.shared_expert = "shared_expert";
}

}  // namespace motley::model
