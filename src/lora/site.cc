#include "lora/site.h"

#include <array>

#include "base/cat.h"

namespace motley::lora {

std::string_view name(Projection projection) {
  static constexpr std::array<std::string_view, projection_count> names{
      "self_attn.q_proj",
      "self_attn.k_proj",
      "self_attn.v_proj",
      "self_attn.o_proj",
      "self_attn.q_a_proj",
      "self_attn.q_b_proj",
      "self_attn.kv_a_proj_with_mqa",
      "self_attn.kv_b_proj",
      "mlp.gate_proj",
      "mlp.up_proj",
      "mlp.down_proj",
      "mlp.shared_experts.gate_proj",
      "mlp.shared_experts.up_proj",
      "mlp.shared_experts.down_proj",
      "mlp.shared_expert_gate",
      "mlp.gate",
      "mlp.experts.gate_proj",
      "mlp.experts.up_proj",
      "mlp.experts.down_proj",
      "embed_tokens",
      "lm_head",
  };
  return names[static_cast<std::size_t>(projection)];
}

std::string to_string(Site site) {
  if (site.layer < 0) return std::string(name(site.projection));
  return cat("layers.", site.layer, ".", name(site.projection));
}

}  // namespace motley::lora
