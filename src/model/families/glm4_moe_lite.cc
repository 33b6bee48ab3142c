// GLM-4.7-Flash: DeepSeek-V3's latent attention and router; layers are dense by list, or the first
// ones.

#include "model/families.h"

namespace motley::model {

void read_glm4_moe_lite(ConfigReader& json, Config& config) {
  read_latent_attention(json, config);

  read_sigmoid_experts(json, config);
  // Without either setting the first layer is dense.
  if (!json.has("first_k_dense_replace") && !config.moe_layers.empty())
    config.moe_layers.front() = false;
  mark_listed_moe_layers(json, config);
}

}  // namespace motley::model
