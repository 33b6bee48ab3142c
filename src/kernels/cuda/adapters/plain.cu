// Deltas in float32, for any problem: the shrink, the expand with everything behind it, and whole
// weights of an adapter in place of a base product.

#include <algorithm>

#include "kernels/cuda/adapters/adapters.cuh"
#include "kernels/cuda/adapters/delta_launches.h"
#include "kernels/cuda/primitives/launch.cuh"

namespace motley::kernels::cuda {
namespace {

constexpr int threads = 128;
constexpr int warps = threads / 32;
// The ranks that a warp computes for one read of x; divides 8.
constexpr int warp_ranks = 4;
// Blocks along ranks: a block has warps * warp_ranks at a time.
constexpr int max_rank_blocks = 4;

struct Shrink {
  AdaptLinears call;
  int rank_blocks;
  int chunk;  // ranks [chunk * rank_chunk, ...) of each row
};

// Eight numbers of x from column k on; zeros past its end.
template <class X>
__device__ void load_x(const X* row, std::int64_t in, std::int64_t k, bool aligned,
                       float (&to)[8]) {
  if (aligned) {
    const auto vec8 = *reinterpret_cast<const Vec8<X>*>(row + k);
#pragma unroll
    for (int i = 0; i < 8; ++i) to[i] = static_cast<float>(vec8.numbers[i]);
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) to[i] = k + i < in ? static_cast<float>(row[k + i]) : 0.0F;
}

template <class FactorType>
__device__ void load_a(const void* a, std::int64_t in, std::int64_t rank, std::int64_t k,
                       bool aligned, float (&to)[8]) {
  if (aligned) return load_vec8<FactorType>(a, rank * in + k, to);
#pragma unroll
  for (int i = 0; i < 8; ++i)
    to[i] = k + i < in ? number_at<FactorType>(a, rank * in + k + i) : 0.0F;
}

// rank_rows[row][linear][r] = scale * A[r] . x[row] for the ranks of the chunk, with zeros behind a
// term's true ranks up to a multiple of 8. A block has some rows and one linear map; a warp has 4
// ranks of rows of one label; a lane takes 8 columns of every 256.
template <class X, class FactorType, int tile_rows>
__global__ void __launch_bounds__(threads) shrink(Shrink p) {
  wait_for_previous_grid();
  launch_dependents();
  const AdaptLinears& call = p.call;
  const AdapterRows& adapters = call.adapters;
  const int linear = static_cast<int>(blockIdx.y) / p.rank_blocks;
  const int rank_block = static_cast<int>(blockIdx.y) % p.rank_blocks;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t first_row = std::int64_t{blockIdx.x} * tile_rows;
  const std::int64_t last_row = min(first_row + tile_rows, adapters.rows);
  const int chunk_begin = p.chunk * rank_chunk;
  const bool aligned = call.in % 8 == 0 && call.x_stride % 8 == 0 &&
                       reinterpret_cast<std::uintptr_t>(call.x) % (8 * sizeof(X)) == 0;
  for (std::int64_t begin = first_row; begin < last_row;) {
    const int label = adapters.labels[begin];
    std::int64_t end = begin + 1;
    while (end < last_row && adapters.labels[end] == label) ++end;
    const int rows = static_cast<int>(end - begin);
    const TermRange range = terms_of(adapters, label);
    int base = -chunk_begin;  // the term's first rank in the chunk
    for (int i = range.begin; i < range.end && base < rank_chunk; ++i) {
      const AdapterTerm term = adapters.terms[i];
      if (!has_site(adapters, term, call.linears[linear].site)) continue;
      const FactorEntry factor = term.sites[call.linears[linear].site].factor;
      const int padded = round_up_8(factor.rank);
      const int stop = min(padded, rank_chunk - base);
      const int start = max(0, -base);
      const float scale = factor.scale[0] * term.scale;
      for (int r = start + (rank_block * warps + warp) * warp_ranks; r < stop;
           r += p.rank_blocks * warps * warp_ranks) {
        float sums[warp_ranks][tile_rows] = {};
        for (std::int64_t k = 8 * lane; k < call.in; k += 256) {
          float a[warp_ranks][8];
#pragma unroll
          for (int j = 0; j < warp_ranks; ++j) {
            if (r + j < factor.rank) {
              load_a<FactorType>(factor.a, call.in, r + j, k, aligned, a[j]);
            } else {
#pragma unroll
              for (int e = 0; e < 8; ++e) a[j][e] = 0;
            }
          }
#pragma unroll
          for (int m = 0; m < tile_rows; ++m) {
            if (m >= rows) break;
            float x[8];
            load_x(static_cast<const X*>(call.x) + (begin + m) * call.x_stride, call.in, k, aligned,
                   x);
#pragma unroll
            for (int j = 0; j < warp_ranks; ++j)
#pragma unroll
              for (int e = 0; e < 8; ++e) sums[j][m] = fmaf(a[j][e], x[e], sums[j][m]);
          }
        }
#pragma unroll
        for (int m = 0; m < tile_rows; ++m) {
          if (m >= rows) break;
#pragma unroll
          for (int j = 0; j < warp_ranks; ++j) {
            const float sum = warp_sum(sums[j][m]);
            if (lane != j) continue;
            // Nothing was summed behind the true rank; but x may be infinite there.
            const bool there = r + j < factor.rank;
            const float by =
                there ? scale * row_scale<FactorType>(factor.a, factor.split, call.in, r + j)
                      : 0.0F;
            call.rank_rows[((begin + m) * call.count + linear) * rank_chunk + base + r + j] =
                there ? by * sum : 0.0F;
          }
        }
      }
      base += padded;
    }
    begin = end;
  }
}

struct Expand {
  AdaptLinears call;
  int chunk = 0;
  bool last = false;  // the last chunk adds gain, bias and rounding
  int tile_begin[max_adapted_linears + 1] = {};
};

// Adjacent rows.
struct Rows {
  std::int64_t begin;
  int count;
};

// Stores output o of some rows: to acc, or, in the last chunk, as the result.
template <int tile_rows>
__device__ void store_output(const AdaptedLinear& linear, const Rows& rows, std::int64_t o,
                             const float (&acc)[tile_rows], const Finish& finish, bool last) {
  const float by = finish.gain == nullptr ? 1.0F : finish.gain[o];
  const float plus = finish.bias == nullptr ? 0.0F : finish.bias[o];
#pragma unroll
  for (int m = 0; m < tile_rows; ++m) {
    if (m >= rows.count) break;
    if (!last) {
      linear.acc[(rows.begin + m) * linear.acc_stride + o] = acc[m];
      continue;
    }
    float value = acc[m];
    if (finish.gain != nullptr) value = __fmul_rn(value, by);
    if (finish.bias != nullptr) value = __fadd_rn(value, plus);
    store_activation(linear.result, linear.result_type, (rows.begin + m) * linear.result_stride + o,
                     value);
  }
}

// A block has some rows and 128 outputs of one linear map; a thread has one output.
template <class FactorType, int tile_rows>
__global__ void __launch_bounds__(threads) expand(Expand p) {
  wait_for_previous_grid();
  launch_dependents();
  const AdaptLinears& call = p.call;
  const AdapterRows& adapters = call.adapters;
  int index = 0;
  while (static_cast<int>(blockIdx.y) >= p.tile_begin[index + 1]) ++index;
  const AdaptedLinear& linear = call.linears[index];
  const std::int64_t o =
      std::int64_t{static_cast<int>(blockIdx.y) - p.tile_begin[index]} * threads + threadIdx.x;
  if (o >= linear.out) return;
  const std::int64_t first_row = std::int64_t{blockIdx.x} * tile_rows;
  const std::int64_t last_row = min(first_row + tile_rows, adapters.rows);
  const int chunk_begin = p.chunk * rank_chunk;
  for (std::int64_t begin = first_row; begin < last_row;) {
    const int label = adapters.labels[begin];
    std::int64_t end = begin + 1;
    while (end < last_row && adapters.labels[end] == label) ++end;
    const int rows = static_cast<int>(end - begin);
    float acc[tile_rows];
#pragma unroll
    for (int m = 0; m < tile_rows; ++m)
      acc[m] = m < rows ? linear.acc[(begin + m) * linear.acc_stride + o] : 0.0F;
    Finish finish{.bias = linear.bias};
    const TermRange range = terms_of(adapters, label);
    int base = -chunk_begin;
    for (int i = range.begin; i < range.end; ++i) {
      const AdapterTerm term = adapters.terms[i];
      if (!has_site(adapters, term, linear.site)) continue;
      const SiteEntry entry = term.sites[linear.site];
      finish.take(entry);
      const int padded = round_up_8(entry.factor.rank);
      const int start = max(0, -base);
      const int stop = min(padded, rank_chunk - base);
      if (start < stop) {
        float delta[tile_rows] = {};
        for (int r = start; r < stop; r += 8) {
          float b[8];
          load_vec8<FactorType>(entry.factor.b, o * entry.factor.split + r, b);
#pragma unroll
          for (int m = 0; m < tile_rows; ++m) {
            if (m >= rows) break;
            const float* const t =
                call.rank_rows + ((begin + m) * call.count + index) * rank_chunk + base + r;
#pragma unroll
            for (int e = 0; e < 8; ++e) delta[m] = fmaf(b[e], t[e], delta[m]);
          }
        }
        const float scale =
            row_scale<FactorType>(entry.factor.b, linear.out, entry.factor.split, o);
#pragma unroll
        for (int m = 0; m < tile_rows; ++m) acc[m] = __fmaf_rn(scale, delta[m], acc[m]);
      }
      if (p.last && entry.lora_bias != nullptr) {
        const float scale = entry.factor.scale[0] * term.scale;
        const float more = entry.lora_bias[o];
#pragma unroll
        for (int m = 0; m < tile_rows; ++m) acc[m] = __fmaf_rn(scale, more, acc[m]);
      }
      base += padded;
    }
    store_output(linear, {begin, rows}, o, acc, finish, p.last);
    begin = end;
  }
}

// acc[row][o] = W_own[o] . x[row] for rows whose adapter has a whole weight. One warp per output.
template <class FactorType>
__global__ void __launch_bounds__(threads) multiply_replaced(AdaptLinears p, int index) {
  wait_for_previous_grid();
  launch_dependents();
  const AdapterRows& adapters = p.adapters;
  const AdaptedLinear& linear = p.linears[index];
  const std::int64_t row = blockIdx.x;
  const TermRange range = terms_of(adapters, adapters.labels[row]);
  if (range.end != range.begin + 1) return;
  const AdapterTerm term = adapters.terms[range.begin];
  if (!has_site(adapters, term, linear.site)) return;
  const void* const replaced = term.sites[linear.site].replaced;
  if (replaced == nullptr) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (std::int64_t o = std::int64_t{blockIdx.y} * warps + threadIdx.x / 32; o < linear.out;
       o += std::int64_t{gridDim.y} * warps) {
    float sum = 0;
    for (std::int64_t k = lane; k < p.in; k += 32)
      sum = fmaf(number_at<FactorType>(replaced, o * p.in + k),
                 activation_at(p.x, p.x_type, row * p.x_stride + k), sum);
    sum = warp_sum(sum);
    if (lane == 0) linear.acc[row * linear.acc_stride + o] = sum;
  }
}

// Calls body(number type of x, FactorType()) for every combination.
template <class Body>
void with_types(const AdaptLinears& call, Body body) {
  with_factor_type(call.adapters.factor_type, [&](auto type) {
    call.x_type == DType::bf16 ? body(__nv_bfloat16(), type) : body(float(), type);
  });
}

unsigned row_tiles(const AdaptLinears& call, int tile_rows) {
  return static_cast<unsigned>((call.adapters.rows + tile_rows - 1) / tile_rows);
}

template <int tile_rows>
void launch_shrink(const AdaptLinears& call, int chunk, StreamHandle stream) {
  constexpr int ranks_a_block = warps * warp_ranks;
  const int rank_blocks =
      std::clamp((std::min(call.max_ranks, rank_chunk) + ranks_a_block - 1) / ranks_a_block, 1,
                 max_rank_blocks);
  with_types(call, [&](auto x, auto type) {
    launch("adapters' shrink", shrink<decltype(x), decltype(type), tile_rows>,
           {.grid = row_tiles(call, tile_rows),
            .grid_y = static_cast<unsigned>(call.count * rank_blocks),
            .threads = threads},
           stream, Shrink{.call = call, .rank_blocks = rank_blocks, .chunk = chunk});
  });
}

template <int tile_rows>
void launch_expand(const AdaptLinears& call, const RankChunk& chunk, StreamHandle stream) {
  Expand expanding{.call = call, .chunk = chunk.number, .last = chunk.last};
  for (int i = 0; i < call.count; ++i)
    expanding.tile_begin[i + 1] =
        expanding.tile_begin[i] + static_cast<int>((call.linears[i].out + threads - 1) / threads);
  for (int i = call.count; i < max_adapted_linears; ++i)
    expanding.tile_begin[i + 1] = expanding.tile_begin[call.count];
  with_factor_type(call.adapters.factor_type, [&](auto type) {
    launch("adapters' expand", expand<decltype(type), tile_rows>,
           {.grid = row_tiles(call, tile_rows),
            .grid_y = static_cast<unsigned>(expanding.tile_begin[call.count]),
            .threads = threads},
           stream, expanding);
  });
}

}  // namespace

void multiply_own_weights(const AdaptLinears& call, StreamHandle stream) {
  const auto multiply = call.adapters.factor_type == DType::f32 ? multiply_replaced<FactorF32>
                                                                : multiply_replaced<FactorBf16>;
  for (int i = 0; i < call.count; ++i) {
    const std::int64_t blocks = std::min<std::int64_t>((call.linears[i].out + 31) / 32, 4096);
    launch("adapters' own weights", multiply,
           {.grid = static_cast<unsigned>(call.adapters.rows),
            .grid_y = static_cast<unsigned>(blocks),
            .threads = threads},
           stream, call, i);
  }
}

void shrink_plain_1(const AdaptLinears& call, int chunk, StreamHandle stream) {
  launch_shrink<1>(call, chunk, stream);
}
void shrink_plain_8(const AdaptLinears& call, int chunk, StreamHandle stream) {
  launch_shrink<8>(call, chunk, stream);
}
void expand_plain_1(const DeltaProblem& problem, const RankChunk& chunk, StreamHandle stream) {
  launch_expand<1>(problem.linears, chunk, stream);
}
void expand_plain_8(const DeltaProblem& problem, const RankChunk& chunk, StreamHandle stream) {
  launch_expand<8>(problem.linears, chunk, stream);
}

}  // namespace motley::kernels::cuda
