#pragma once

#include <vector>

#include "base/function_ref.h"
#include "base/result.h"
#include "cli/bench/tune/graph_timer.h"
#include "kernels/tuning/tuning.h"
#include "model/model.h"

namespace motley::cli {

// Measures the tilings of a model's expert layers on a GPU, without adapters and then with some on
// every row. Empty if the model
// has no such layers, or their backend has one kernel. `done` gets each shape when it is measured.
Result<std::vector<kernels::TunedExperts>> tune_experts(
    const model::Model& model, tensor::Device& device, GraphTimer& timer,
    FunctionRef<void(const kernels::TunedExperts&)> done);

}  // namespace motley::cli
