// Qwen3.5, Qwen3.6 and Qwen3-Next: gated delta nets, and gated attention in every fourth layer.

#include <algorithm>

#include "base/cat.h"
#include "model/families.h"

namespace motley::model {
namespace {

DeltaNetConfig read_delta_net(ConfigReader& json) {
  return {.key_heads = json.integer("linear_num_key_heads"),
          .value_heads = json.integer("linear_num_value_heads"),
          .key_width = json.integer("linear_key_head_dim"),
          .value_width = json.integer("linear_value_head_dim"),
          .taps = json.integer_or("linear_conv_kernel_dim", 4, 2)};
}

// Which layers have attention: by list, or every so many.
void assign_mixers(ConfigReader& json, Config& config) {
  const std::vector<std::string> types = json.texts_or_empty("layer_types");
  const std::int64_t every = json.integer_or("full_attention_interval", 4, 1);
  if (!types.empty() && types.size() != config.mixer_of_layer.size())
    return json.refuse(
        ErrorCode::bad_file,
        cat("layer_types has ", types.size(), " entries for ", config.layers, " layers"),
        "list one for each layer");
  for (std::size_t layer = 0; layer < config.mixer_of_layer.size(); ++layer) {
    const bool by_interval = (static_cast<std::int64_t>(layer) + 1) % every == 0;
    const bool full = types.empty() ? by_interval : types[layer] == "full_attention";
    if (!types.empty() && !full && types[layer] != "linear_attention")
      json.refuse(ErrorCode::unsupported, cat("layer type ", quote(types[layer])),
                  "layers of this family are linear_attention or full_attention");
    config.mixer_of_layer[layer] = full ? 0 : 1;
  }
}

void read_mixers(ConfigReader& json, Config& config) {
  config.norms_add_one = true;
  config.norm_weight_in_f32 = true;
  GroupedConfig& attention = config.grouped();
  attention.qk_norm = QkNorm::per_head;
  attention.gated = true;
  attention.qkv_bias = json.boolean_or("attention_bias", false);
  attention.o_bias = attention.qkv_bias;
  config.mixers.emplace_back(read_delta_net(json));
  assign_mixers(json, config);
}

void read_experts(ConfigReader& json, Config& config, bool renormalise) {
  MoeConfig& moe = config.moe;
  moe.router.kind = moe::RouterKind::softmax_then_topk;
  moe.router.experts = static_cast<int>(json.integer("num_experts"));
  moe.router.top_k = static_cast<int>(json.integer("num_experts_per_tok"));
  moe.router.renormalise = renormalise;
  moe.intermediate = json.integer("moe_intermediate_size");
  moe.shared_intermediate = json.integer_or("shared_expert_intermediate_size", 0);
  moe.shared_gate = moe.shared_intermediate > 0;
  config.naming.shared_expert = "shared_expert";
}

}  // namespace

void read_qwen3_5(ConfigReader& json, Config& config) { read_mixers(json, config); }

void read_qwen3_5_moe(ConfigReader& json, Config& config) {
  read_mixers(json, config);
  read_experts(json, config, true);
  mark_moe_layers(config, [](std::int64_t) { return true; });
}

void read_qwen3_next(ConfigReader& json, Config& config) {
  read_mixers(json, config);
  std::get<DeltaNetConfig>(config.mixers.back()).by_key_head = true;
  read_experts(json, config, json.boolean_or("norm_topk_prob", true));
  mark_sparse_moe_layers(json, config);
}

}  // namespace motley::model
