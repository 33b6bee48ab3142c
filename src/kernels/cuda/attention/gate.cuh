// Gates of heads: their sigmoids multiply attention's sums, before those are divided by the sum of
// weights.
#pragma once

#include "kernels/elementary.h"

namespace motley::kernels::cuda {

// A number of the result.
struct ResultPlace {
  int row, head, column;
};

// Without gates the value as it is. A kernel decides once whether there are any: a branch for each
// number of a tile would cost prompts up to two thirds of their time.
template <bool has_gates>
__device__ inline float gated(const HeadGates& gates, const ResultPlace& at, float value) {
  if constexpr (!has_gates) return value;
  const float gate =
      __ldg(gates.data + at.row * gates.stride + at.head * gates.head_stride + at.column);
  return __fmul_rn(value, 1.0F / (1.0F + expf(-gate)));
}

}  // namespace motley::kernels::cuda
