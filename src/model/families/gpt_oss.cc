// gpt-oss: sinks and alternating windows; biases everywhere; the clamped activation; experts stored
// transposed with gate and up interleaved; the router's softmax covers only the chosen experts.

#include "base/cat.h"
#include "model/families.h"

namespace motley::model {

void read_gpt_oss(ConfigReader& json, Config& config) {
  config.norm_weight_in_f32 = true;
  config.naming.router = "router";
  config.naming.experts_transposed = true;
  GroupedConfig& attention = config.grouped();
  attention.sinks = true;
  attention.qkv_bias = json.boolean_or("attention_bias", true);
  attention.o_bias = attention.qkv_bias;

  const std::int64_t window = json.integer("sliding_window");
  const std::vector<std::string> types = json.texts_or_empty("layer_types");
  GroupedConfig windowed = attention;
  windowed.window = window;
  config.mixers.emplace_back(windowed);
  if (types.size() != static_cast<std::size_t>(config.layers)) {
    json.refuse(ErrorCode::bad_file,
                cat("layer_types has ", types.size(), " entries for ", config.layers, " layers"),
                "list one for each layer");
    return;
  }
  for (std::size_t layer = 0; layer < types.size(); ++layer) {
    if (types[layer] == "sliding_attention") {
      config.mixer_of_layer[layer] = 1;
    } else if (types[layer] != "full_attention") {
      json.refuse(ErrorCode::unsupported, cat("layer type ", quote(types[layer])),
                  "gpt-oss layers are sliding_attention or full_attention");
    }
  }

  config.moe.router.kind = moe::RouterKind::topk_then_softmax;
  config.moe.router.experts = static_cast<int>(json.integer("num_local_experts"));
  config.moe.router.top_k =
      static_cast<int>(json.integer({"num_experts_per_tok", "experts_per_token"}));
  config.moe.router_bias = true;
  config.moe.intermediate = config.dense_intermediate;
  config.moe.expert_biases = true;
  config.moe.activation = moe::ActivationKind::clamped_swiglu;
  config.moe.swiglu_limit = json.number_or("swiglu_limit", 7.0);
  config.moe.swiglu_alpha = json.number_or("swiglu_alpha", 1.702);
  mark_moe_layers(config, [](std::int64_t) { return true; });
}

}  // namespace motley::model
