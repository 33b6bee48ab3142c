// Qwen3-MoE: q and k are normed head by head; layers are dense by list or by step. The text model
// of Qwen3-VL-MoE is the same, with weights of the chosen experts that always sum to one.

#include "model/families.h"

namespace motley::model {

void read_qwen3_moe(ConfigReader& json, Config& config) {
  GroupedConfig& attention = config.grouped();
  attention.qk_norm = QkNorm::per_head;
  attention.qkv_bias = json.boolean_or("attention_bias", false);
  attention.o_bias = attention.qkv_bias;

  config.moe.router.kind = moe::RouterKind::softmax_then_topk;
  config.moe.router.experts = static_cast<int>(json.integer({"num_experts", "num_local_experts"}));
  config.moe.router.top_k = static_cast<int>(json.integer("num_experts_per_tok"));
  config.moe.router.renormalise = json.boolean_or("norm_topk_prob", false);
  config.moe.intermediate = json.integer("moe_intermediate_size");
  mark_sparse_moe_layers(json, config);
}

void read_qwen3_vl_moe(ConfigReader& json, Config& config) {
  read_qwen3_moe(json, config);
  config.moe.router.renormalise = true;
  config.naming.released_transposed = true;
}

}  // namespace motley::model
