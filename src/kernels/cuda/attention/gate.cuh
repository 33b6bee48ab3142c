// Gates of heads: their sigmoids multiply attention's results.
#pragma once

#include "kernels/elementary.h"

namespace motley::kernels::cuda {

// A number of the result.
struct ResultPlace {
  int row, head, column;
};

__device__ inline float gated(const HeadGates& gates, const ResultPlace& at, float value) {
  if (gates.data == nullptr) return value;
  const float gate =
      __ldg(gates.data + at.row * gates.stride + at.head * gates.head_stride + at.column);
  return __fmul_rn(value, 1.0F / (1.0F + expf(-gate)));
}

}  // namespace motley::kernels::cuda
