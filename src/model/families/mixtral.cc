// Mixtral: every layer has experts, named w1, w3, w2 by transformers v4; weights of the chosen
// experts always sum to one.

#include "model/families.h"

namespace motley::model {

void read_mixtral(ConfigReader& json, Config& config) {
  config.naming.moe_block = "block_sparse_moe";
  config.naming.expert_gate = "w1";
  config.naming.expert_up = "w3";
  config.naming.expert_down = "w2";

  config.moe.router.kind = moe::RouterKind::softmax_then_topk;
  config.moe.router.experts = static_cast<int>(json.integer("num_local_experts"));
  config.moe.router.top_k = static_cast<int>(json.integer("num_experts_per_tok"));
  config.moe.router.renormalise = true;
  config.moe.intermediate = config.dense_intermediate;
  mark_moe_layers(config, [](std::int64_t) { return true; });
  // A released config once had a window of 4096.
  config.grouped().window = json.integer_or("sliding_window", 0);
}

}  // namespace motley::model
