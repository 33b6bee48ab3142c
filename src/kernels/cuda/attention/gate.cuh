// Gates of heads: their sigmoids multiply attention's sums, before those are divided by the sum of
// weights.
#pragma once

#include "kernels/elementary.h"

namespace motley::kernels::cuda {

// A number of the result.
struct ResultPlace {
  int row, head, column;
};

// A kernel asks once whether there are gates: a branch for each number of a tile made short prompts
// 1.7 times as long (bench/results/2026-11-29-wide-heads.md).
__device__ inline float gated(const HeadGates& gates, const ResultPlace& at, float value) {
  const float gate =
      __ldg(gates.data + at.row * gates.stride + at.head * gates.head_stride + at.column);
  return __fmul_rn(value, 1.0F / (1.0F + expf(-gate)));
}

}  // namespace motley::kernels::cuda
