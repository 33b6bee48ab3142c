// Experts of DeepSeek-V3 and GLM-4.5: a sigmoid router with a correction bias and groups, a shared
// expert for all tokens, and dense layers first.

#include "model/families.h"

namespace motley::model {

void read_sigmoid_experts(ConfigReader& json, Config& config) {
  moe::RouterSpec& router = config.moe.router;
  router.kind = moe::RouterKind::sigmoid_grouped;
  router.experts = static_cast<int>(json.integer("n_routed_experts"));
  router.top_k = static_cast<int>(json.integer("num_experts_per_tok"));
  router.groups = static_cast<int>(json.integer_or("n_group", 1, 1));
  router.kept_groups = static_cast<int>(json.integer_or("topk_group", 1, 1));
  router.renormalise = json.boolean_or("norm_topk_prob", true);
  router.scale = static_cast<float>(json.number_or("routed_scaling_factor", 1.0));
  config.moe.correction_bias = true;
  config.moe.intermediate = json.integer("moe_intermediate_size");
  config.moe.shared_intermediate = config.moe.intermediate * json.integer_or("n_shared_experts", 0);
  mark_moe_layers_behind_dense(json, config);
}

}  // namespace motley::model
