#include "kernels/cuda/elementary/elementary.h"
#include "kernels/cuda/primitives/launch.cuh"

namespace motley::kernels::cuda {
namespace {

// A position below 2^24 is exact in float32, and the angle is rounded once, as on the CPU. Its
// cosine and sine are computed in float64, whose range reduction is exact for every such angle, and
// rounded once. So large positions lose no precision.
__global__ void __launch_bounds__(256) fill_table(RopeTable p) {
  launch_dependents();
  wait_for_previous_grid();
  const std::int64_t index = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (index >= p.rows * p.pairs) return;
  const std::int64_t row = index / p.pairs;
  const std::int64_t pair = index % p.pairs;
  const float angle = static_cast<float>(p.positions[row]) * p.inverse_frequencies[pair];
  double sine = 0;
  double cosine = 0;
  sincos(static_cast<double>(angle), &sine, &cosine);
  float* const cosines = p.cos_sin + row * 2 * p.pairs;
  cosines[pair] = static_cast<float>(cosine) * p.factor;
  cosines[p.pairs + pair] = static_cast<float>(sine) * p.factor;
}

}  // namespace

void rope_table(const RopeTable& p, StreamHandle stream) {
  constexpr unsigned threads = 256;
  launch("rope_table", fill_table,
         {.grid = static_cast<unsigned>((p.rows * p.pairs + threads - 1) / threads),
          .threads = threads},
         stream, p);
}

}  // namespace motley::kernels::cuda
