// Linear maps behind their base products: replaced weights, rows into rank space, and back out of
// it with everything that comes after.

#include <algorithm>

#include "base/check.h"
#include "kernels/cuda/adapters.cuh"
#include "kernels/cuda/adapters.h"
#include "kernels/cuda/adapters_tiles.cuh"
#include "kernels/cuda/elementary.h"
#include "kernels/cuda/queue.cuh"

namespace motley::kernels::cuda {
namespace {

constexpr int threads = 128;
constexpr int warps = threads / 32;
// Ranks of a warp at a time: it reads x once for all of them. Eight are a multiple of it.
constexpr int warp_ranks = 4;
// Blocks over ranks: those of a block are warps * warp_ranks at a time.
constexpr int most_rank_blocks = 4;

struct Shrink {
  AdaptLinears call;
  int rank_blocks;
  int window;  // ranks [window * rank_window, ...) of each row
};

// Eight numbers of x from column k on, as far as it has them.
template <class X>
__device__ void load_x(const X* row, std::int64_t in, std::int64_t k, bool aligned,
                       float (&to)[8]) {
  if (aligned) {
    const auto eight = *reinterpret_cast<const Eight<X>*>(row + k);
#pragma unroll
    for (int i = 0; i < 8; ++i) to[i] = static_cast<float>(eight.numbers[i]);
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) to[i] = k + i < in ? static_cast<float>(row[k + i]) : 0.0F;
}

template <class Pages>
__device__ void load_a(const void* a, std::int64_t in, std::int64_t rank, std::int64_t k,
                       bool aligned, float (&to)[8]) {
  if (aligned) return load_eight<Pages>(a, rank * in + k, to);
#pragma unroll
  for (int i = 0; i < 8; ++i) to[i] = k + i < in ? number_at<Pages>(a, rank * in + k + i) : 0.0F;
}

// rank_rows[row][linear][r] = scale * A[r] . x[row] for the ranks of the window; behind a term's
// true ranks, up to a multiple of eight, zeros. A block: some rows, one linear map; a warp: four
// ranks of rows with one label. A lane takes eight columns of every 256.
template <class X, class Pages, int tile_rows>
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
  const int window_begin = p.window * rank_window;
  const bool aligned = call.in % 8 == 0 && call.x_stride % 8 == 0 &&
                       reinterpret_cast<std::uintptr_t>(call.x) % (8 * sizeof(X)) == 0;
  for (std::int64_t begin = first_row; begin < last_row;) {
    const int label = adapters.labels[begin];
    std::int64_t end = begin + 1;
    while (end < last_row && adapters.labels[end] == label) ++end;
    const int rows = static_cast<int>(end - begin);
    const TermRange range = terms_of(adapters, label);
    int base = -window_begin;  // of the term's ranks, inside the window
    for (int i = range.begin; i < range.end && base < rank_window; ++i) {
      const AdapterTerm term = adapters.terms[i];
      if (!has_site(adapters, term, call.linears[linear].site)) continue;
      const FactorEntry factor = term.sites[call.linears[linear].site].factor;
      const int padded = up_to_eight(factor.rank);
      const int stop = min(padded, rank_window - base);
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
              load_a<Pages>(factor.a, call.in, r + j, k, aligned, a[j]);
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
            const float sum = sum_of_warp(sums[j][m]);
            if (lane != j) continue;
            // Behind the true rank nothing was summed; x may be infinite there all the same.
            const bool there = r + j < factor.rank;
            const float by =
                there ? scale * row_scale<Pages>(factor.a, factor.split, call.in, r + j) : 0.0F;
            call.rank_rows[((begin + m) * call.count + linear) * rank_window + base + r + j] =
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
  int window = 0;
  bool last = false;  // of the windows: gain, bias and rounding come with it
  int tile_begin[most_adapted_linears + 1] = {};
};

// A block: some rows, 128 outputs of one linear map; a thread: one output.
template <class Pages, int tile_rows>
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
  const int window_begin = p.window * rank_window;
  for (std::int64_t begin = first_row; begin < last_row;) {
    const int label = adapters.labels[begin];
    std::int64_t end = begin + 1;
    while (end < last_row && adapters.labels[end] == label) ++end;
    const int rows = static_cast<int>(end - begin);
    float acc[tile_rows];
#pragma unroll
    for (int m = 0; m < tile_rows; ++m)
      acc[m] = m < rows ? linear.acc[(begin + m) * linear.acc_stride + o] : 0.0F;
    const float* gain = nullptr;
    const float* bias = linear.bias;
    const TermRange range = terms_of(adapters, label);
    int base = -window_begin;
    for (int i = range.begin; i < range.end; ++i) {
      const AdapterTerm term = adapters.terms[i];
      if (!has_site(adapters, term, linear.site)) continue;
      const SiteEntry entry = term.sites[linear.site];
      if (entry.gain != nullptr) gain = entry.gain;
      if (entry.replaced_bias != nullptr) bias = entry.replaced_bias;
      const int padded = up_to_eight(entry.factor.rank);
      const int start = max(0, -base);
      const int stop = min(padded, rank_window - base);
      if (start < stop) {
        float delta[tile_rows] = {};
        for (int r = start; r < stop; r += 8) {
          float b[8];
          load_eight<Pages>(entry.factor.b, o * entry.factor.split + r, b);
#pragma unroll
          for (int m = 0; m < tile_rows; ++m) {
            if (m >= rows) break;
            const float* const t =
                call.rank_rows + ((begin + m) * call.count + index) * rank_window + base + r;
#pragma unroll
            for (int e = 0; e < 8; ++e) delta[m] = fmaf(b[e], t[e], delta[m]);
          }
        }
        const float scale = row_scale<Pages>(entry.factor.b, linear.out, entry.factor.split, o);
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
    const float by = gain == nullptr ? 1.0F : gain[o];
    const float plus = bias == nullptr ? 0.0F : bias[o];
#pragma unroll
    for (int m = 0; m < tile_rows; ++m) {
      if (m >= rows) break;
      if (!p.last) {
        linear.acc[(begin + m) * linear.acc_stride + o] = acc[m];
        continue;
      }
      float value = acc[m];
      if (gain != nullptr) value = __fmul_rn(value, by);
      if (bias != nullptr) value = __fadd_rn(value, plus);
      store_activation(linear.result, linear.result_type, (begin + m) * linear.result_stride + o,
                       value);
    }
    begin = end;
  }
}

// acc[row][o] = W_own[o] . x[row] for rows whose adapter has a weight of its own. A warp an output.
template <class Pages>
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
      sum = fmaf(number_at<Pages>(replaced, o * p.in + k),
                 activation_at(p.x, p.x_type, row * p.x_stride + k), sum);
    sum = sum_of_warp(sum);
    if (lane == 0) linear.acc[row * linear.acc_stride + o] = sum;
  }
}

template <class X, class Pages, int tile_rows>
void run_windows(const AdaptLinears& call, StreamHandle stream) {
  const auto tiles = static_cast<unsigned>((call.adapters.rows + tile_rows - 1) / tile_rows);
  Expand expanding;
  expanding.call = call;
  for (int i = 0; i < call.count; ++i)
    expanding.tile_begin[i + 1] =
        expanding.tile_begin[i] + static_cast<int>((call.linears[i].out + threads - 1) / threads);
  for (int i = call.count; i < most_adapted_linears; ++i)
    expanding.tile_begin[i + 1] = expanding.tile_begin[call.count];
  const int windows = std::max(1, (call.most_ranks + rank_window - 1) / rank_window);
  constexpr int ranks_a_block = warps * warp_ranks;
  const int rank_blocks =
      std::clamp((std::min(call.most_ranks, rank_window) + ranks_a_block - 1) / ranks_a_block, 1,
                 most_rank_blocks);
  for (int window = 0; window < windows; ++window) {
    if (call.most_ranks > 0) {
      queue("adapters' shrink", shrink<X, Pages, tile_rows>,
            {.grid = tiles,
             .grid_y = static_cast<unsigned>(call.count * rank_blocks),
             .threads = threads},
            stream, Shrink{.call = call, .rank_blocks = rank_blocks, .window = window});
    }
    expanding.window = window;
    expanding.last = window + 1 == windows;
    queue("adapters' expand", expand<Pages, tile_rows>,
          {.grid = tiles,
           .grid_y = static_cast<unsigned>(expanding.tile_begin[call.count]),
           .threads = threads},
          stream, expanding);
  }
}

}  // namespace

bool adapter_tiles::supports(const AdaptLinears& call) {
  const bool rows = call.x_type == DType::bf16 && call.in > 0 && call.in % 8 == 0 &&
                    call.x_stride % 8 == 0 && reinterpret_cast<std::uintptr_t>(call.x) % 16 == 0;
  return rows && call.adapters.pages != DType::f32;
}

adapter_tiles::Layout adapter_tiles::layout_of(const AdaptLinears& call) {
  Layout layout;
  const auto fours = [](const void* data, std::int64_t stride, std::size_t bytes) {
    return stride % 4 == 0 && reinterpret_cast<std::uintptr_t>(data) % (4 * bytes) == 0;
  };
  for (int i = 0; i < call.count; ++i) {
    const AdaptedLinear& linear = call.linears[i];
    layout.whole = layout.whole && linear.out % 4 == 0 &&
                   fours(linear.acc, linear.acc_stride, sizeof(float)) &&
                   fours(linear.bias, 0, sizeof(float)) &&
                   fours(linear.result, linear.result_stride,
                         linear.result_type == DType::bf16 ? sizeof(Bf16) : sizeof(float));
    layout.with_base = layout.with_base || linear.bias != nullptr || linear.result != linear.acc;
  }
  return layout;
}

namespace {

// Whole weights of an adapter's own take the base product's place.
void multiply_own_weights(const AdaptLinears& params, StreamHandle stream) {
  const auto multiply = params.adapters.pages == DType::f32 ? multiply_replaced<PagesF32>
                                                            : multiply_replaced<PagesBf16>;
  for (int i = 0; i < params.count; ++i) {
    const std::int64_t blocks = std::min<std::int64_t>((params.linears[i].out + 31) / 32, 4096);
    queue("adapters' own weights", multiply,
          {.grid = static_cast<unsigned>(params.adapters.rows),
           .grid_y = static_cast<unsigned>(blocks),
           .threads = threads},
          stream, params, i);
  }
}

void adapt_plainly(const AdaptLinears& params, StreamHandle stream) {
  const std::int64_t rows = params.adapters.rows;
  with_pages(params.adapters.pages, [&](auto pages) {
    using Pages = decltype(pages);
    // A row's bits do not depend on how many share its block.
    constexpr std::int64_t few_rows = 128;
    if (params.x_type == DType::bf16) {
      rows <= few_rows ? run_windows<__nv_bfloat16, Pages, 1>(params, stream)
                       : run_windows<__nv_bfloat16, Pages, 8>(params, stream);
    } else {
      rows <= few_rows ? run_windows<float, Pages, 1>(params, stream)
                       : run_windows<float, Pages, 8>(params, stream);
    }
  });
}

}  // namespace

void adapt_linears(const AdaptLinears& params, StreamHandle stream) {
  if (params.adapters.rows == 0 || params.count == 0) return;
  if (params.replaced) multiply_own_weights(params, stream);
  if (!adapter_tiles::supports(params)) return adapt_plainly(params, stream);
  if (adapter_tiles::takes_labels(params)) return adapter_tiles::adapt_labels(params, stream);
  if (params.adapters.rows <= few_adapted_rows) return adapter_tiles::adapt_few(params, stream);
  adapter_tiles::adapt_many(params, stream);
}

void adapt_heads(const AdaptHeads& params, StreamHandle stream) {
  const AdaptLinears& linears = params.linears;
  if (linears.adapters.rows > few_adapted_rows && linears.count > 0 &&
      adapter_tiles::supports(linears) && adapter_tiles::takes_heads(params)) {
    if (linears.replaced) multiply_own_weights(linears, stream);
    adapter_tiles::shrink_many(linears, 0, stream);
    return adapter_tiles::expand_heads(params, stream);
  }
  adapt_linears(linears, stream);
  prepare_heads(params.heads, stream);
}

bool adapt_linear_and_norm(const AdaptAndNorm& params, StreamHandle stream) {
  const AdaptLinears& linear = params.linear;
  const Add& add = params.rows.add;
  MOTLEY_CHECK(linear.count == 1 && linear.linears[0].result == linear.linears[0].acc &&
                   linear.linears[0].acc == add.b && linear.linears[0].acc_stride == add.b_stride &&
                   linear.linears[0].out == add.width && linear.adapters.rows == add.rows,
               "the norm of a sum of which the map's result is the second part");
  if (linear.adapters.rows <= few_adapted_rows || !adapter_tiles::supports(linear) ||
      !adapter_tiles::takes_norm(params))
    return false;
  if (linear.replaced) multiply_own_weights(linear, stream);
  adapter_tiles::shrink_many(linear, 0, stream);
  adapter_tiles::expand_and_norm(params, stream);
  return true;
}

}  // namespace motley::kernels::cuda
