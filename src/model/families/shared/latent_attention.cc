// Shared by DeepSeek-V2 and V3.

#include <cmath>

#include "model/families.h"

namespace motley::model {

void read_latent_attention(ConfigReader& json, Config& config) {
  const GroupedConfig& read = config.grouped();
  LatentConfig latent{.heads = read.heads, .rope = read.rope};
  latent.q_rank = json.integer_or("q_lora_rank", 0);
  latent.kv_rank = json.integer("kv_lora_rank");
  latent.nope_dim = json.integer("qk_nope_head_dim");
  latent.rope_dim = json.integer("qk_rope_head_dim");
  latent.value_dim = json.integer("v_head_dim");
  if (json.boolean_or("attention_bias", false))
    json.refuse(ErrorCode::unsupported, "attention_bias is true",
                "no released model has biases on its latent attention");

  // yarn also scales the scores, by the square of its magnitude.
  const bool stretched = latent.rope.scaling == ops::RopeSpec::Scaling::yarn;
  const double magnitude =
      stretched ? ops::yarn_magnitude(latent.rope.factor, latent.rope.mscale_all_dim) : 1.0;
  latent.scale =
      magnitude * magnitude / std::sqrt(static_cast<double>(latent.nope_dim + latent.rope_dim));

  latent.rope.dims = latent.rope_dim;
  if (json.boolean_or("rope_interleave", true))
    latent.rope.pairs = ops::RopeSpec::Pairs::interleaved;
  config.mixers = {latent};
}

}  // namespace motley::model
