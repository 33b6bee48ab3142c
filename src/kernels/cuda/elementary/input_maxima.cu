#include "kernels/cuda/elementary/arrange_inputs.h"
#include "kernels/cuda/primitives/vec4.cuh"
#include "kernels/cuda/primitives/warp.cuh"

// What ranks that cut a row find of their parts, before the maxima over ranks are taken.
namespace motley::kernels::cuda {
namespace {

constexpr int threads = 256;
constexpr int warps = threads / 32;

template <class X>
__device__ float largest_of(const X* x, std::int64_t begin, std::int64_t end, int t, int count) {
  float largest = 0;
  for (std::int64_t i = begin + t; i < end; i += count)
    largest = fmaxf(largest, fabsf(widen(x[i])));
  return warp_max(largest);
}

// A block has a whole row.
template <class X>
__device__ void whole_row(const X* x, std::int64_t width, float* out) {
  __shared__ float largest_of_warp[warps];
  const int t = static_cast<int>(threadIdx.x);
  const float own = largest_of(x, 0, width, t, threads);
  if (t % 32 == 0) largest_of_warp[t / 32] = own;
  __syncthreads();
  if (t != 0) return;
  float largest = 0;
  for (const float other : largest_of_warp) largest = fmaxf(largest, other);
  *out = largest;
}

// A warp has a block of inputs, which may begin or end on another rank.
template <class X>
__device__ void block_of_row(const FindInputMaxima& p, const X* x, std::int64_t width, float* out) {
  const int t = static_cast<int>(threadIdx.x);
  const std::int64_t scale = std::int64_t{blockIdx.y} * warps + t / 32;
  if (scale >= p.scales) return;
  const std::int64_t columns = p.rounding.columns;
  const std::int64_t begin = (scale - p.first) * columns - p.rounding.first;
  const float largest =
      largest_of(x, max(begin, std::int64_t{0}), min(begin + columns, width), t % 32, 32);
  if (t % 32 == 0) out[scale] = largest;
}

template <class X>
__global__ void __launch_bounds__(threads) find_maxima(FindInputMaxima p) {
  launch_dependents();
  wait_for_previous_grid();
  const std::int64_t row = blockIdx.x;
  const std::int64_t from = p.x_rows != nullptr ? p.x_rows[row] : row;
  const bool has_inputs = p.x_count == nullptr || from < *p.x_count;
  const std::int64_t width = has_inputs ? p.width : 0;
  const X* const x = static_cast<const X*>(p.x) + (has_inputs ? from * p.x_stride : 0);
  float* const out = p.out + row * p.scales;
  if (p.rounding.scales == InputRounding::Scales::row)
    whole_row(x, width, out);
  else
    block_of_row(p, x, width, out);
}

}  // namespace

void input_maxima(const FindInputMaxima& p, StreamHandle stream) {
  if (p.rows <= 0) return;
  const LaunchShape shape{.grid = static_cast<unsigned>(p.rows),
                          .grid_y = static_cast<unsigned>((p.scales + warps - 1) / warps),
                          .threads = threads};
  with_type(p.x_type, [&](auto number) {
    launch("input_maxima", find_maxima<decltype(number)>, shape, stream, p);
  });
}

}  // namespace motley::kernels::cuda
