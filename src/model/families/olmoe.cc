// OLMoE: q and k are normed over their full width; q, k and v may be clipped.

#include "model/families.h"

namespace motley::model {

void read_olmoe(ConfigReader& json, Config& config) {
  GroupedConfig& attention = config.grouped();
  attention.qk_norm = QkNorm::full_width;
  attention.clip = json.number_or("clip_qkv", 0.0);
  attention.qkv_bias = json.boolean_or("attention_bias", false);
  attention.o_bias = attention.qkv_bias;

  config.moe.router.kind = moe::RouterKind::softmax_then_topk;
  config.moe.router.experts = static_cast<int>(json.integer({"num_experts", "num_local_experts"}));
  config.moe.router.top_k = static_cast<int>(json.integer("num_experts_per_tok"));
  config.moe.router.renormalise = json.boolean_or("norm_topk_prob", false);
  config.moe.intermediate = config.dense_intermediate;
  mark_moe_layers(config, [](std::int64_t) { return true; });
}

}  // namespace motley::model
