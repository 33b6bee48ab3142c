// The decay and the beta of a gated delta net, for kernels that compute them. Files that include
// this are compiled without fused multiply-add.
#pragma once

#include "kernels/recurrence.h"

namespace motley::kernels::cuda {

// A number a thread.
__device__ inline void gate_number(const DeltaGates& p, std::int64_t index) {
  const std::int64_t row = index / p.heads;
  const std::int64_t head = index % p.heads;
  if (row >= p.rows) return;
  // Beyond it the sum with one is rounded away.
  constexpr float large = 20;
  const float a = p.a[row * p.a_stride + head] + p.bias[head];
  const float softplus = a > large ? a : log1pf(expf(a));
  p.g[row * p.g_stride + head] = p.decay[head] * softplus;
  p.beta[row * p.beta_stride + head] = 1 / (1 + expf(-p.b[row * p.b_stride + head]));
}

}  // namespace motley::kernels::cuda
