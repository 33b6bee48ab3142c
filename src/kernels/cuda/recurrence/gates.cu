#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/recurrence/gates.cuh"
#include "kernels/cuda/recurrence/recurrence.h"

namespace motley::kernels::cuda {
namespace {

constexpr unsigned threads = 256;

__global__ void __launch_bounds__(threads) gate_rows(const __grid_constant__ DeltaGates p) {
  launch_dependents();
  wait_for_previous_grid();
  gate_number(p, std::int64_t{blockIdx.x} * threads + threadIdx.x);
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
