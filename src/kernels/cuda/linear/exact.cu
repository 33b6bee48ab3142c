#include <cstdint>

#include "kernels/cuda/linear/linear.h"
#include "kernels/cuda/primitives/vec4.cuh"
#include "kernels/cuda/primitives/weight_decode.cuh"

namespace motley::kernels::cuda {
namespace {

constexpr int threads = 256;
constexpr int tile_outputs = exact_tile.outputs;
constexpr int tile_inner = exact_tile.k;

// Forward: the inner index runs along a row of w, and rows of w are outputs. Transposed: the other
// way round.
struct Product {
  Linear p;
  std::int64_t inner;
  std::int64_t outputs;  // of a head
  bool aligned;
  unsigned output_tiles;
};

// Where a block's results begin.
struct TilePlace {
  std::int64_t head;
  std::int64_t first_row;
  std::int64_t first_output;
};
// A thread's results, row_threads rows and output_threads outputs apart.
template <int row_threads, int rows_each, int outputs_each>
__device__ __forceinline__ void write_sums(const Product& product, const TilePlace& place,
                                           const float (&sums)[rows_each][outputs_each]) {
  constexpr int output_threads = threads / row_threads;
  const Linear& p = product.p;
  const int t = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int r = 0; r < rows_each; ++r) {
    const std::int64_t row = place.first_row + t / output_threads + r * row_threads;
    if (row >= p.rows) continue;
#pragma unroll
    for (int o = 0; o < outputs_each; ++o) {
      const std::int64_t output = place.first_output + t % output_threads + o * output_threads;
      if (output < product.outputs)
        p.y[row * p.y_stride + place.head * p.y_head_stride + output] = sums[r][o];
    }
  }
}

// A block has tile_rows rows x tile_outputs outputs of a head; a thread has rows_each x
// outputs_each of them. Each is one chain of fused multiply-adds with the inner index ascending, so
// all tile shapes give the same bits.
template <WeightKind kind, bool transposed, int tile_rows, int rows_each>
__global__ void __launch_bounds__(threads, 2) multiply(Product product) {
  constexpr int row_threads = tile_rows / rows_each;
  constexpr int output_threads = threads / row_threads;
  constexpr int outputs_each = tile_outputs / output_threads;
  __shared__ float xs[tile_inner][tile_rows + 1];
  __shared__ float ws[tile_inner][tile_outputs + 1];
  launch_dependents();
  wait_for_previous_grid();
  const Linear& p = product.p;
  const std::int64_t head = blockIdx.x / product.output_tiles;
  const std::int64_t first_output = std::int64_t{blockIdx.x % product.output_tiles} * tile_outputs;
  const std::int64_t first_row = std::int64_t{blockIdx.y} * tile_rows;
  const std::int64_t first_w = head * p.w_rows_per_head + p.w_first;
  const int t = static_cast<int>(threadIdx.x);
  // Adjacent threads read adjacent elements of a row of w.
  const auto inner_of = [](int i) { return transposed ? i / tile_outputs : i % tile_inner; };
  const auto output_of = [](int i) { return transposed ? i % tile_outputs : i / tile_inner; };
  float sums[rows_each][outputs_each] = {};
  // The loads of the next step of K are in flight during this one's products.
  constexpr int xs_each = tile_rows * tile_inner / threads;
  constexpr int ws_each = tile_outputs * tile_inner / threads;
  float next_x[xs_each];
  float next_w[ws_each];
  const auto load = [&](std::int64_t begin) {
#pragma unroll
    for (int j = 0; j < xs_each; ++j) {
      const int i = t + j * threads;
      const std::int64_t row = first_row + i / tile_inner;
      const std::int64_t k = begin + i % tile_inner;
      next_x[j] = 0;
      if (row < p.rows && k < product.inner) {
        const std::int64_t at = row * p.x_stride + head * p.x_head_stride + k;
        next_x[j] = p.x_type == DType::f32 ? static_cast<const float*>(p.x)[at]
                                           : widen(static_cast<const bf16*>(p.x)[at]);
      }
    }
#pragma unroll
    for (int j = 0; j < ws_each; ++j) {
      const int i = t + j * threads;
      const std::int64_t k = begin + inner_of(i);
      const std::int64_t o = first_output + output_of(i);
      next_w[j] = 0;
      if (k < product.inner && o < product.outputs) {
        next_w[j] = transposed ? decode<kind>(p.w, first_w + k, o, product.aligned)
                               : decode<kind>(p.w, first_w + o, k, product.aligned);
      }
    }
  };
  load(0);
  for (std::int64_t begin = 0; begin < product.inner; begin += tile_inner) {
#pragma unroll
    for (int j = 0; j < xs_each; ++j) {
      const int i = t + j * threads;
      xs[i % tile_inner][i / tile_inner] = next_x[j];
    }
#pragma unroll
    for (int j = 0; j < ws_each; ++j) {
      const int i = t + j * threads;
      ws[inner_of(i)][output_of(i)] = next_w[j];
    }
    __syncthreads();
    if (begin + tile_inner < product.inner) load(begin + tile_inner);
    const int count = static_cast<int>(min(std::int64_t{tile_inner}, product.inner - begin));
    for (int k = 0; k < count; ++k) {
#pragma unroll
      for (int r = 0; r < rows_each; ++r) {
        const float x = xs[k][t / output_threads + r * row_threads];
#pragma unroll
        for (int o = 0; o < outputs_each; ++o)
          sums[r][o] = fmaf(x, ws[k][t % output_threads + o * output_threads], sums[r][o]);
      }
    }
    __syncthreads();
  }
  write_sums<row_threads>(product, {head, first_row, first_output}, sums);
}

template <WeightKind kind, bool transposed>
void launch_product(const Product& product, StreamHandle stream) {
  const Linear& p = product.p;
  LaunchShape shape{.grid = static_cast<unsigned>(p.heads) * product.output_tiles,
                    .threads = threads};
  constexpr int few = 8;
  constexpr int many = exact_tile.rows;
  if (p.rows <= few) {
    shape.grid_y = 1;
    launch("linear", multiply<kind, transposed, few, 1>, shape, stream, product);
  } else {
    shape.grid_y = static_cast<unsigned>((p.rows + many - 1) / many);
    launch("linear", multiply<kind, transposed, many, 4>, shape, stream, product);
  }
}

template <bool transposed>
void launch_any(const Linear& p, StreamHandle stream) {
  Product product{.p = p, .inner = p.w.in, .outputs = p.out, .aligned = true, .output_tiles = 0};
  if (transposed) std::swap(product.inner, product.outputs);
  if (p.rows <= 0 || p.heads <= 0 || product.outputs <= 0) return;
  product.output_tiles = static_cast<unsigned>((product.outputs + tile_outputs - 1) / tile_outputs);
  const auto address = reinterpret_cast<std::uintptr_t>(p.w.data);
  product.aligned = address % (p.w.kind == WeightKind::f32 ? 4 : 2) == 0;
  switch (p.w.kind) {
    case WeightKind::f32:
      return launch_product<WeightKind::f32, transposed>(product, stream);
    case WeightKind::f16:
      return launch_product<WeightKind::f16, transposed>(product, stream);
    case WeightKind::bf16:
      return launch_product<WeightKind::bf16, transposed>(product, stream);
    case WeightKind::f8_e4m3:
      return launch_product<WeightKind::f8_e4m3, transposed>(product, stream);
    case WeightKind::int4:
      return launch_product<WeightKind::int4, transposed>(product, stream);
    case WeightKind::i8:
      return launch_product<WeightKind::i8, transposed>(product, stream);
    case WeightKind::f4_e2m1:
      return launch_product<WeightKind::f4_e2m1, transposed>(product, stream);
  }
}

}  // namespace

void linear_exact(const Linear& p, StreamHandle stream) { launch_any<false>(p, stream); }

void linear_transposed_exact(const LinearTransposed& p, StreamHandle stream) {
  launch_any<true>(p, stream);
}

}  // namespace motley::kernels::cuda
