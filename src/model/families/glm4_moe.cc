// GLM-4.5 and 4.6: grouped-query attention with partial rope, and DeepSeek-V3's router.

#include "model/families.h"

namespace motley::model {

void read_glm4_moe(ConfigReader& json, Config& config) {
  GroupedConfig& attention = config.grouped();
  attention.qkv_bias = json.boolean_or("attention_bias", false);
  attention.qk_norm = json.boolean_or("use_qk_norm", false) ? QkNorm::per_head : QkNorm::none;

  read_sigmoid_experts(json, config);
}

}  // namespace motley::model
