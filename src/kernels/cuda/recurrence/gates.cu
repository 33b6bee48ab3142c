#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/recurrence/recurrence.h"

namespace motley::kernels::cuda {
namespace {

constexpr unsigned threads = 256;

// A number a thread.
__global__ void __launch_bounds__(threads) gate_rows(const __grid_constant__ DeltaGates p) {
  launch_dependents();
  wait_for_previous_grid();
  const std::int64_t index = std::int64_t{blockIdx.x} * threads + threadIdx.x;
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

}  // namespace

void gates(const DeltaGates& p, StreamHandle stream) {
  if (p.rows <= 0 || p.heads <= 0) return;
  launch("delta_gates", gate_rows,
         {.grid = static_cast<unsigned>((p.rows * p.heads + threads - 1) / threads),
          .threads = threads},
         stream, p);
}

}  // namespace motley::kernels::cuda
