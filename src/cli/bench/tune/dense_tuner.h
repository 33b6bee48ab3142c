#pragma once

#include <vector>

#include "base/function_ref.h"
#include "base/result.h"
#include "cli/bench/tune/graph_timer.h"
#include "kernels/tuning/tuning.h"
#include "model/model.h"

namespace motley::cli {

// Measures the dense kernels on each distinct product of a model on a GPU. `done` gets each when it
// is measured.
Result<std::vector<kernels::TunedDense>> tune_dense(
    const model::Model& model, tensor::Device& device, GraphTimer& timer,
    FunctionRef<void(const kernels::TunedDense&)> done);

}  // namespace motley::cli
