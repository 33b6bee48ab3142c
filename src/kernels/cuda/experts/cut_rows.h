#pragma once

#include <cstdint>

#include "base/function_ref.h"
#include "kernels/weight_view.h"

namespace motley::kernels::cuda {

// Rows of h that ranks cut, where a scale of down's inputs is of several ranks' numbers.
struct CutRows {
  std::int64_t scales = 0;  // of a row; 0: there are none
  std::int64_t first = 0;   // of them, the first that this rank has numbers of
  float* maxima = nullptr;  // [pairs, scales] by pair: memory for them
  // Queues what replaces them by their maxima over ranks.
  const FunctionRef<void()>* over_ranks = nullptr;

  // As this rank's inputs are arranged by them.
  InputMaxima own() const { return {maxima == nullptr ? nullptr : maxima + first, scales}; }
};

}  // namespace motley::kernels::cuda
