// Which layers have experts.

#include <algorithm>

#include "base/cat.h"
#include "model/families.h"

namespace motley::model {

void mark_moe_layers(Config& config, FunctionRef<bool(std::int64_t layer)> has_experts) {
  for (std::int64_t layer = 0; layer < config.layers; ++layer)
    config.moe_layers[static_cast<std::size_t>(layer)] = has_experts(layer);
}

void mark_sparse_moe_layers(ConfigReader& json, Config& config) {
  const std::int64_t step = json.integer_or("decoder_sparse_step", 1, 1);
  const std::vector<std::int64_t> dense = json.integers_or_empty("mlp_only_layers");
  mark_moe_layers(config, [&](std::int64_t layer) {
    return (layer + 1) % step == 0 && std::ranges::find(dense, layer) == dense.end();
  });
}

void mark_moe_layers_behind_dense(ConfigReader& json, Config& config) {
  const std::int64_t dense = json.integer_or("first_k_dense_replace", 0);
  const std::int64_t step = json.integer_or("moe_layer_freq", 1, 1);
  mark_moe_layers(config, [&](std::int64_t layer) { return layer >= dense && layer % step == 0; });
}

void mark_listed_moe_layers(ConfigReader& json, Config& config) {
  const std::vector<std::string> types = json.texts_or_empty("mlp_layer_types");
  if (types.empty()) return;
  if (types.size() != config.moe_layers.size())
    return json.refuse(
        ErrorCode::bad_file,
        cat("mlp_layer_types has ", types.size(), " entries for ", config.layers, " layers"),
        "list one for each layer");
  for (const std::string& type : types)
    if (type != "dense" && type != "sparse")
      json.refuse(ErrorCode::unsupported, cat("mlp_layer_types has ", quote(type)),
                  "layers of this family are dense or sparse");
  mark_moe_layers(config, [&](std::int64_t layer) {
    return types[static_cast<std::size_t>(layer)] == "sparse";
  });
}

}  // namespace motley::model
