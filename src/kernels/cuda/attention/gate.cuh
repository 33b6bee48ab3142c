// Gates of heads: their sigmoids multiply attention's sums, before those are divided by the sum of
// weights.
#pragma once

#include "kernels/elementary.h"

namespace motley::kernels::cuda {

// Kernels ask once whether there are gates: a branch for each number of a tile made short prompts
// 1.7 times as long (bench/results/2026-11-29-wide-heads.md). Approximate, to 2e-6: the exact
// functions are calls, around which the compiler moves registers also where there are no gates.
__device__ inline float gated(float gate, float sum) {
  return __fmul_rn(sum, __fdividef(1.0F, 1.0F + __expf(-gate)));
}

// Where the gates of a head of a row begin.
__device__ inline const float* gates_of(const HeadGates& gates, int row, int head) {
  return gates.data + row * gates.stride + head * gates.head_stride;
}

}  // namespace motley::kernels::cuda
