// kv_b's products per head for few float32 rows: queries into latent space by the head's key rows,
// and values from latents. Weights are bf16; a row is split into two bf16 that nearly add up to it.
// Rows are the M = 16 side of the MMA. The order of sums over K does not depend on the number of
// rows.
#include <cstdint>

#include "kernels/cuda/linear/linear.h"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/ptx.cuh"
#include "kernels/cuda/primitives/tensor_core.cuh"

namespace motley::kernels::cuda {
namespace {

constexpr int threads = 128;
constexpr int warps = threads / 32;
constexpr int tile_rows = per_head_tile.rows;
// A warp's share of K, in steps of 16, and its outputs, in groups of 8.
constexpr int own_k = per_head_tile.k;
constexpr int own_steps = own_k / 16;
constexpr int own_n8_tiles = per_head_tile.outputs / 8;
static_assert(own_k == per_head_width && own_k * warps == per_head_latent);

struct Call {
  const float* x;
  std::int64_t x_stride, x_head_stride;
  const Bf16* w;  // the head's first row
  std::int64_t w_head_stride, in;
  void* y;
  bool rounded;
  std::int64_t y_stride, y_head_stride;
  int rows, tiles;  // tiles of a head's outputs
};

// Numbers k = 4t ... 4t + 3 of a step for rows g and g + 8: the high parts, and the remainders.
struct Rows16 {
  std::uint32_t high[4], low[4];
};
__device__ inline void split(float a, float b, std::uint32_t& high, std::uint32_t& low) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(a, b);
  const __nv_bfloat162 rest = __floats2bfloat162_rn(a - __low2float(both), b - __high2float(both));
  high = *reinterpret_cast<const std::uint32_t*>(&both);
  low = *reinterpret_cast<const std::uint32_t*>(&rest);
}
__device__ inline Rows16 split(const float4& upper, const float4& lower) {
  Rows16 rows;
  split(upper.x, upper.y, rows.high[0], rows.low[0]);
  split(lower.x, lower.y, rows.high[1], rows.low[1]);
  split(upper.z, upper.w, rows.high[2], rows.low[2]);
  split(lower.z, lower.w, rows.high[3], rows.low[3]);
  return rows;
}

struct Weights {
  std::uint32_t at[own_steps][own_n8_tiles][2];
};
using Sums = float[own_n8_tiles][4];

// A lane's rows g and g + 8 of a tile's x, if they exist.
struct LaneRows {
  bool has_first, has_second;
  const float* first;
  const float* second;
};

// place(step) is the lane's first k.
template <class Place>
__device__ inline void multiply(const LaneRows& rows, const Weights& weights, const Place& place,
                                Sums& sums) {
  float4 upper[own_steps]{};
  float4 lower[own_steps]{};
#pragma unroll
  for (int s = 0; s < own_steps; ++s) {
    if (rows.has_first) upper[s] = *reinterpret_cast<const float4*>(rows.first + place(s));
    if (rows.has_second) lower[s] = *reinterpret_cast<const float4*>(rows.second + place(s));
  }
#pragma unroll
  for (int s = 0; s < own_steps; ++s) {
    const Rows16 x = split(upper[s], lower[s]);
#pragma unroll
    for (int e = 0; e < own_n8_tiles; ++e) {
      const auto& [b0, b1] = weights.at[s][e];
      multiply_add(sums[e], x.high[0], x.high[1], x.high[2], x.high[3], b0, b1);
      multiply_add(sums[e], x.low[0], x.low[1], x.low[2], x.low[3], b0, b1);
    }
  }
}

__device__ inline void write_two(const Call& p, int row, int head, int output, float a, float b) {
  if (row >= p.rows) return;
  const std::int64_t at = row * p.y_stride + head * p.y_head_stride + output;
  if (p.rounded) {
    *reinterpret_cast<__nv_bfloat162*>(static_cast<Bf16*>(p.y) + at) = __floats2bfloat162_rn(a, b);
  } else {
    *reinterpret_cast<float2*>(static_cast<float*>(p.y) + at) = make_float2(a, b);
  }
}

// y[k] = sum over j < 128 of x[j] w[j][k]. A block has 64 columns of a head's weights, a warp 16.
__global__ void __launch_bounds__(threads) multiply_transposed(const __grid_constant__ Call p) {
  constexpr int columns = 64;
  __shared__ alignas(128) Bf16 tile[own_k][columns];
  launch_dependents();
  const int head = static_cast<int>(blockIdx.x) / p.tiles;
  const int first = static_cast<int>(blockIdx.x) % p.tiles * columns;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const std::uint32_t shared = smem_addr(tile);
  const Bf16* const w = p.w + head * p.w_head_stride + first;
#pragma unroll
  for (int i = thread; i < own_k * columns / 8; i += threads)
    copy_16(shared + swizzled(i / 8, i % 8, 128), w + i / 8 * p.in + i % 8 * 8);
  copies_commit();
  copies_wait<0>();
  __syncthreads();
  // A lane's row of the four 8 x 8 blocks of a step: a lane's ks of a step form a vec4.
  const int own = thread / 32 * 16;
  const int place = lane % 16;
  const int k = place % 8 / 2 * 4 + place / 8 * 2 + place % 2;
  Weights weights;
#pragma unroll
  for (int s = 0; s < own_steps; ++s)
    load_matrix_x4_trans(weights.at[s],
                         shared + swizzled(16 * s + k, (own + lane / 16 * 8) / 8, 128));
  wait_for_previous_grid();
  const int row = static_cast<int>(blockIdx.y) * tile_rows + lane / 4;
  const float* const x = p.x + row * p.x_stride + head * p.x_head_stride;
  Sums sums{};
  multiply(
      {row < p.rows, row + 8 < p.rows, x, x + 8 * p.x_stride}, weights,
      [&](int s) { return 16 * s + lane % 4 * 4; }, sums);
#pragma unroll
  for (int e = 0; e < own_n8_tiles; ++e) {
    const int output = first + own + 8 * e + lane % 4 * 2;
    write_two(p, row, head, output, sums[e][0], sums[e][1]);
    write_two(p, row + 8, head, output, sums[e][2], sums[e][3]);
  }
}

// y[d] = sum over k < 512 of x[k] w[d][k]. A block has 16 of a head's rows, a warp a quarter of K.
// The sums of the warps are added in order.
__global__ void __launch_bounds__(threads) multiply_straight(const __grid_constant__ Call p) {
  constexpr int outputs = 8 * own_n8_tiles;
  __shared__ alignas(16) float parts[warps][tile_rows][outputs];
  launch_dependents();
  const int head = static_cast<int>(blockIdx.x) / p.tiles;
  const int first = static_cast<int>(blockIdx.x) % p.tiles * outputs;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int warp = thread / 32;
  // Eight consecutive k are the vec4s of two steps.
  const int own = warp * own_k + lane % 4 * 8;
  Weights weights;
#pragma unroll
  for (int e = 0; e < own_n8_tiles; ++e) {
    const Bf16* const w = p.w + head * p.w_head_stride + (first + 8 * e + lane / 4) * p.in + own;
#pragma unroll
    for (int i = 0; i < own_steps / 2; ++i) {
      const uint4 vec8 = *reinterpret_cast<const uint4*>(w + 32 * i);
      weights.at[2 * i][e][0] = vec8.x;
      weights.at[2 * i][e][1] = vec8.y;
      weights.at[2 * i + 1][e][0] = vec8.z;
      weights.at[2 * i + 1][e][1] = vec8.w;
    }
  }
  wait_for_previous_grid();
  const int first_row = static_cast<int>(blockIdx.y) * tile_rows;
  const int row = first_row + lane / 4;
  const float* const x = p.x + row * p.x_stride + head * p.x_head_stride;
  Sums sums{};
  multiply(
      {row < p.rows, row + 8 < p.rows, x, x + 8 * p.x_stride}, weights,
      [&](int s) { return own + s / 2 * 32 + s % 2 * 4; }, sums);
#pragma unroll
  for (int e = 0; e < own_n8_tiles; ++e) {
    const int output = 8 * e + lane % 4 * 2;
    *reinterpret_cast<float2*>(&parts[warp][lane / 4][output]) =
        make_float2(sums[e][0], sums[e][1]);
    *reinterpret_cast<float2*>(&parts[warp][lane / 4 + 8][output]) =
        make_float2(sums[e][2], sums[e][3]);
  }
  __syncthreads();
  const int own_row = thread / 8;
  const int output = thread % 8 * 2;
  float2 total{};
#pragma unroll
  for (int w = 0; w < warps; ++w) {
    const float2 part = *reinterpret_cast<const float2*>(&parts[w][own_row][output]);
    total.x += part.x;
    total.y += part.y;
  }
  write_two(p, first_row + own_row, head, first + output, total.x, total.y);
}

}  // namespace

void per_head_product(const LinearPerHead& p, StreamHandle stream) {
  const Linear& l = p.product;
  const std::int64_t tiles = p.transposed ? l.w.in / 64 : l.out / 16;
  const bool rounded = p.rounded != nullptr;
  const Call call{.x = static_cast<const float*>(l.x),
                  .x_stride = l.x_stride,
                  .x_head_stride = l.x_head_stride,
                  .w = static_cast<const Bf16*>(p.narrow.data) + l.w_first * l.w.in,
                  .w_head_stride = l.w_rows_per_head * l.w.in,
                  .in = l.w.in,
                  .y = rounded ? p.rounded : l.y,
                  .rounded = rounded,
                  .y_stride = rounded ? p.rounded_stride : l.y_stride,
                  .y_head_stride = rounded ? p.rounded_head_stride : l.y_head_stride,
                  .rows = static_cast<int>(l.rows),
                  .tiles = static_cast<int>(tiles)};
  launch("linear_per_head", p.transposed ? multiply_transposed : multiply_straight,
         {.grid = static_cast<unsigned>(l.heads * tiles),
          .grid_y = static_cast<unsigned>((l.rows + tile_rows - 1) / tile_rows),
          .threads = threads},
         stream, call);
}

}  // namespace motley::kernels::cuda
