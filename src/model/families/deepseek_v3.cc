// DeepSeek-V3, R1, Kimi-K2 and the text model of Kimi-K2.5: latent attention; sigmoid router with a
// correction bias and groups; shared experts.

#include "model/families.h"

namespace motley::model {

void read_deepseek_v3(ConfigReader& json, Config& config) {
  read_latent_attention(json, config);

  read_sigmoid_experts(json, config);
}

}  // namespace motley::model
