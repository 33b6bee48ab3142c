// Shared by DeepSeek-V2 and V3.

#include <cmath>

#include "model/families.h"

namespace motley::model {

void read_latent_attention(ConfigReader& json, Config& config) {
  config.latent_attention = true;
  LatentConfig& latent = config.latent;
  latent.q_rank = json.integer_or("q_lora_rank", 0);
  latent.kv_rank = json.integer("kv_lora_rank");
  latent.nope_dim = json.integer("qk_nope_head_dim");
  latent.rope_dim = json.integer("qk_rope_head_dim");
  latent.value_dim = json.integer("v_head_dim");
  if (json.boolean_or("attention_bias", false))
    json.refuse(ErrorCode::unsupported, "attention_bias is true",
                "no released model has biases on its latent attention");

  config.attention.kv_heads = 1;
  config.attention.head_dim = latent.nope_dim + latent.rope_dim;
  // yarn also scales the scores, by the square of its magnitude.
  const bool stretched = config.rope.scaling == ops::RopeSpec::Scaling::yarn;
  const double magnitude =
      stretched ? ops::yarn_magnitude(config.rope.factor, config.rope.mscale_all_dim) : 1.0;
  config.attention.scale =
      magnitude * magnitude / std::sqrt(static_cast<double>(config.attention.head_dim));

  config.rope.dims = latent.rope_dim;
  if (json.boolean_or("rope_interleave", true))
    config.rope.pairs = ops::RopeSpec::Pairs::interleaved;
}

}  // namespace motley::model
