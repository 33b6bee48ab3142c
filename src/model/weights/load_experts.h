#pragma once

#include <string>

#include "model/config/config.h"
#include "model/weights/weight_source.h"

namespace motley::model {

// "model.layers.3.mlp", or the older name of the family's block where the checkpoint has that.
Result<std::string> moe_module(const WeightSource& source, const Config& config,
                               std::int32_t layer);

// A layer's routed experts from either naming: one matrix for each expert and projection (as
// transformers v4 writes them), or fused over experts, gate above up.
Result<moe::ExpertWeights> load_experts(WeightSource& source, const Config& config,
                                        const std::string& module);

}  // namespace motley::model
