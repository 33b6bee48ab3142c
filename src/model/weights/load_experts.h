#pragma once

#include <string>

#include "model/config/config.h"
#include "model/weights/weight_source.h"

namespace motley::model {

// "model.layers.3.mlp", or the family's older name for the block if the checkpoint uses it.
Result<std::string> moe_module(const WeightSource& source, const Config& config,
                               std::int32_t layer);

// A layer's routed experts in either naming: one matrix for each expert and projection
// (transformers v4), or fused over experts with gate above up.
Result<moe::ExpertWeights> load_experts(WeightSource& source, const Config& config,
                                        const std::string& module);

}  // namespace motley::model
