// Deltas of MLA's kv_b in absorbed form. A block has one head of one row, or of some adjacent rows.

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/adapters/adapters.cuh"
#include "kernels/cuda/adapters/adapters.h"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/ptx.cuh"

namespace motley::kernels::cuda {
namespace {

constexpr int threads = 128;
constexpr int warps = threads / 32;
// Ranks that a block keeps in shared memory at a time.
constexpr int ranks_at_once = 64;

// Prompt rows are adjacent and share a label; few rows are decoding sequences, one block each.
constexpr std::int64_t few_rows = 256;
constexpr int rows_of_prompts = 8;

// Adjacent rows of a block that share a label, for which an adapter's numbers are read once.
struct Run {
  std::int64_t first = 0;
  int count = 0;
  TermRange range{};
};
template <int tile_rows>
__device__ Run run_from(const AdaptLatent& p, std::int64_t first) {
  const std::int64_t end = min((std::int64_t{blockIdx.x} + 1) * tile_rows, p.adapters.rows);
  Run run{.first = first};
  if (first >= end) return run;
  const std::int32_t label = p.adapters.labels[first];
  while (first + run.count < end && p.adapters.labels[first + run.count] == label) ++run.count;
  run.range = terms_of(p.adapters, label);
  return run;
}

// Calls body(run) for each run of the block's rows.
template <int tile_rows, class Body>
__device__ void for_runs(const AdaptLatent& p, const Body& body) {
  std::int64_t first = std::int64_t{blockIdx.x} * tile_rows;
  for (Run run = run_from<tile_rows>(p, first); run.count > 0;
       run = run_from<tile_rows>(p, first)) {
    body(run);
    first += run.count;
  }
}

__device__ std::int64_t heads_offset(const AdaptLatent& p, std::int64_t row) {
  return row * p.heads_stride + std::int64_t{blockIdx.y} * p.heads_head_stride;
}
__device__ float* latent_row(const AdaptLatent& p, std::int64_t row) {
  return p.latent_data + row * p.latent_stride + std::int64_t{blockIdx.y} * p.latent_head_stride;
}

// Loads 4 consecutive numbers, as one vector where `whole` says that they are aligned; zeros behind
// `count`.
template <class Number>
struct alignas(4 * sizeof(Number)) Stored {
  Number numbers[4];
};
template <class FactorType>
__device__ void load_vec4_of(const void* from, std::int64_t index, bool whole, std::int64_t count,
                             float (&to)[4]) {
  using Number = typename FactorType::Number;
  const Number* const numbers = static_cast<const Number*>(from) + index;
  if (whole) {
    const auto vec4 = *reinterpret_cast<const Stored<Number>*>(numbers);
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] = FactorType::widen(vec4.numbers[i]);
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) to[i] = i < count ? FactorType::widen(numbers[i]) : 0;
}

// Tables and factors were written before the step began, so those of the first run are prefetched
// while the previous grid still runs. `first`: the head's first row of B.
template <class FactorType, int tile_rows>
__device__ void fetch_ahead(const AdaptLatent& p, std::int64_t first) {
  const Run run = run_from<tile_rows>(p, std::int64_t{blockIdx.x} * tile_rows);
  if (run.range.begin == run.range.end) return;
  const AdapterTerm term = p.adapters.terms[run.range.begin];
  if (!has_site(p.adapters, term, p.site)) return;
  const FactorEntry factor = term.sites[p.site].factor;
  if (factor.rank == 0) return;
  using Number = typename FactorType::Number;
  constexpr int line = 128 / sizeof(Number);
  const auto* const a = static_cast<const Number*>(factor.a);
  for (std::int64_t i = threadIdx.x * line; i < factor.rank * p.latent; i += threads * line)
    prefetch_l2(a + i);
  const auto* const b = static_cast<const Number*>(factor.b);
  for (std::int64_t d = threadIdx.x; d < p.width; d += threads)
    prefetch_l2(b + (first + d) * factor.split);
}

// Stores a bf16 copy of what the thread has written itself, `each` consecutive numbers.
template <int each>
__device__ void round_run(const AdaptLatent& p, const Run& run, const float* from,
                          std::int64_t stride, std::int64_t width) {
  for (int n = 0; n < run.count; ++n) {
    const float* const row = from + n * stride;
    auto* const to = static_cast<__nv_bfloat16*>(p.rounded) + (run.first + n) * p.rounded_stride +
                     blockIdx.y * p.rounded_head_stride;
    for (std::int64_t at = each * threadIdx.x; at < width; at += each * threads) {
#pragma unroll
      for (int i = 0; i < each; ++i)
        if (at + i < width) to[at + i] = __float2bfloat16_rn(row[at + i]);
    }
  }
}

template <int tile_rows>
__global__ void __launch_bounds__(threads) scale_queries(AdaptLatent p) {
  wait_for_previous_grid();
  launch_dependents();
  for_runs<tile_rows>(p, [&](const Run& run) {
    if (run.range.end != run.range.begin + 1) return;
    const AdapterTerm term = p.adapters.terms[run.range.begin];
    if (!has_site(p.adapters, term, p.site)) return;
    const float* const all_gains = term.sites[p.site].gain;
    if (all_gains == nullptr) return;
    const float* const gain = all_gains + blockIdx.y * p.rows_a_head;
    for (int n = 0; n < run.count; ++n) {
      const std::int64_t at = heads_offset(p, run.first + n);
      for (std::int64_t d = threadIdx.x; d < p.width; d += threads)
        store_activation(p.heads_data, p.heads_type, at + d,
                         activation_at(p.heads_data, p.heads_type, at + d) * gain[d]);
    }
  });
}

// Shared memory of a block: its rows' inputs, then their ranks.
struct Shared {
  float* inputs;  // [tile_rows][width]
  float* ranks;   // [tile_rows][ranks_at_once]
};
template <int tile_rows>
__device__ Shared shared_of(std::int64_t width) {
  extern __shared__ __align__(16) float numbers[];
  return {.inputs = numbers, .ranks = numbers + tile_rows * width};
}
template <int tile_rows>
std::size_t shared_bytes(std::int64_t width) {
  return sizeof(float) * tile_rows * (static_cast<std::size_t>(width) + ranks_at_once);
}

// Whether rows of latents and of A may be read as vec4s.
__device__ bool latent_takes_vec4(const AdaptLatent& p) {
  return p.latent % 4 == 0 && p.latent_stride % 4 == 0 && p.latent_head_stride % 4 == 0 &&
         reinterpret_cast<std::uintptr_t>(p.latent_data) % 16 == 0;
}

// What a thread knows of its block's head.
struct Head {
  std::int64_t first;  // its first row of B
  std::int64_t out;    // rows of B
  bool whole;          // latents and A may be read as vec4s
  int warp, lane;
};
__device__ Head head_of(const AdaptLatent& p, std::int64_t first) {
  return {.first = first,
          .out = p.heads * p.rows_a_head,
          .whole = latent_takes_vec4(p),
          .warp = static_cast<int>(threadIdx.x) / 32,
          .lane = static_cast<int>(threadIdx.x) % 32};
}

// latent += A^T (scale * B_keys^T q), a term and some of its ranks at a time.
template <class FactorType, int tile_rows>
__device__ void adapt_queries(const AdaptLatent& p, const Run& run, const Head& head,
                              const Shared& shared) {
  const auto [first, out, whole, warp, lane] = head;
  for (int n = 0; n < run.count; ++n) {
    const std::int64_t q = heads_offset(p, run.first + n);
    for (std::int64_t d = threadIdx.x; d < p.width; d += threads)
      shared.inputs[n * p.width + d] = activation_at(p.heads_data, p.heads_type, q + d);
  }
  __syncthreads();
  for (int i = run.range.begin; i < run.range.end; ++i) {
    const AdapterTerm term = p.adapters.terms[i];
    if (!has_site(p.adapters, term, p.site)) continue;
    const FactorEntry factor = term.sites[p.site].factor;
    const float scale = factor.scale[0] * term.scale;
    for (int begin = 0; begin < factor.rank; begin += ranks_at_once) {
      const int count = min(ranks_at_once, factor.rank - begin);
      for (int r = 4 * warp; r < count; r += 4 * warps) {
        float sums[tile_rows][4] = {};
        for (std::int64_t d = lane; d < p.width; d += 32) {
          const float row = row_scale<FactorType>(factor.b, out, factor.split, first + d);
          float b[4];
          load_vec4_of<FactorType>(factor.b, (first + d) * factor.split + begin + r, true, 4, b);
#pragma unroll
          for (int n = 0; n < tile_rows; ++n) {
            if (n >= run.count) break;
#pragma unroll
            for (int j = 0; j < 4; ++j)
              sums[n][j] = fmaf(shared.inputs[n * p.width + d], row * b[j], sums[n][j]);
          }
        }
#pragma unroll
        for (int n = 0; n < tile_rows; ++n) {
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            const float sum = warp_sum(sums[n][j]);
            if (lane == 0 && r + j < count)
              shared.ranks[n * ranks_at_once + r + j] =
                  scale * sum *
                  row_scale<FactorType>(factor.a, factor.split, p.latent, begin + r + j);
          }
        }
      }
      __syncthreads();
      for (std::int64_t k = 4 * threadIdx.x; k < p.latent; k += 4 * threads) {
        float sums[tile_rows][4] = {};
#pragma unroll
        for (int n = 0; n < tile_rows; ++n) {
          if (n < run.count)
            load_vec4_of<FactorF32>(latent_row(p, run.first + n), k, whole, p.latent - k, sums[n]);
        }
        for (int r = 0; r < count; ++r) {
          float a[4];
          load_vec4_of<FactorType>(factor.a, (begin + r) * p.latent + k, whole, p.latent - k, a);
#pragma unroll
          for (int n = 0; n < tile_rows; ++n) {
#pragma unroll
            for (int j = 0; j < 4; ++j)
              sums[n][j] = fmaf(shared.ranks[n * ranks_at_once + r], a[j], sums[n][j]);
          }
        }
#pragma unroll
        for (int n = 0; n < tile_rows; ++n) {
          if (n >= run.count) break;
          float* const row = latent_row(p, run.first + n) + k;
#pragma unroll
          for (int j = 0; j < 4; ++j)
            if (k + j < p.latent) row[j] = sums[n][j];
        }
      }
      __syncthreads();
    }
  }
}

template <class FactorType, int tile_rows>
__global__ void __launch_bounds__(threads) latent_queries(AdaptLatent p) {
  launch_dependents();
  const Shared shared = shared_of<tile_rows>(p.width);
  const std::int64_t first = blockIdx.y * p.rows_a_head;
  fetch_ahead<FactorType, tile_rows>(p, first);
  wait_for_previous_grid();
  const Head head = head_of(p, first);
  for_runs<tile_rows>(p, [&](const Run& run) {
    if (run.range.begin != run.range.end)
      adapt_queries<FactorType, tile_rows>(p, run, head, shared);
    if (p.rounds) round_run<4>(p, run, latent_row(p, run.first), p.latent_stride, p.latent);
  });
}

// values = (values + scale * (B_values (A latent) + lora_bias)) * gain.
template <class FactorType, int tile_rows>
__device__ void adapt_values(const AdaptLatent& p, const Run& run, const Head& head,
                             const Shared& shared) {
  const auto [first, out, whole, warp, lane] = head;
  const auto values = [&](int n) {
    return static_cast<float*>(p.heads_data) + heads_offset(p, run.first + n);
  };
  for (int n = 0; n < run.count; ++n) {
    for (std::int64_t k = threadIdx.x; k < p.latent; k += threads)
      shared.inputs[n * p.latent + k] = latent_row(p, run.first + n)[k];
  }
  __syncthreads();
  for (int i = run.range.begin; i < run.range.end; ++i) {
    const AdapterTerm term = p.adapters.terms[i];
    if (!has_site(p.adapters, term, p.site)) continue;
    const SiteEntry entry = term.sites[p.site];
    const FactorEntry& factor = entry.factor;
    const float scale = factor.scale[0] * term.scale;
    for (int begin = 0; begin < factor.rank; begin += ranks_at_once) {
      const int count = min(ranks_at_once, factor.rank - begin);
      for (int r = warp; r < count; r += warps) {
        float sums[tile_rows] = {};
        for (std::int64_t k = 4 * lane; k < p.latent; k += 128) {
          float a[4];
          load_vec4_of<FactorType>(factor.a, (begin + r) * p.latent + k, whole, p.latent - k, a);
#pragma unroll
          for (int n = 0; n < tile_rows; ++n) {
            if (n >= run.count) break;
            float x[4];
            load_vec4_of<FactorF32>(shared.inputs, n * p.latent + k, whole, p.latent - k, x);
#pragma unroll
            for (int j = 0; j < 4; ++j) sums[n] = fmaf(a[j], x[j], sums[n]);
          }
        }
#pragma unroll
        for (int n = 0; n < tile_rows; ++n) {
          const float sum = warp_sum(sums[n]);
          if (lane == 0)
            shared.ranks[n * ranks_at_once + r] =
                scale * row_scale<FactorType>(factor.a, factor.split, p.latent, begin + r) * sum;
        }
      }
      __syncthreads();
      for (std::int64_t d = threadIdx.x; d < p.width; d += threads) {
        float sums[tile_rows] = {};
        for (int r = 0; r < count; r += 4) {
          float b[4];
          load_vec4_of<FactorType>(factor.b, (first + d) * factor.split + begin + r, true, 4, b);
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            if (r + j >= count) break;
#pragma unroll
            for (int n = 0; n < tile_rows; ++n)
              sums[n] = fmaf(b[j], shared.ranks[n * ranks_at_once + r + j], sums[n]);
          }
        }
        const float row = row_scale<FactorType>(factor.b, out, factor.split, first + d);
#pragma unroll
        for (int n = 0; n < tile_rows; ++n)
          if (n < run.count) values(n)[d] = __fmaf_rn(row, sums[n], values(n)[d]);
      }
      __syncthreads();
    }
    if (entry.lora_bias == nullptr && entry.gain == nullptr) continue;
    // Each thread reads only what it wrote, so no barrier is needed.
    for (int n = 0; n < run.count; ++n) {
      for (std::int64_t d = threadIdx.x; d < p.width; d += threads) {
        float value = values(n)[d];
        if (entry.lora_bias != nullptr) value = __fmaf_rn(scale, entry.lora_bias[first + d], value);
        if (entry.gain != nullptr) value = __fmul_rn(value, entry.gain[first + d]);
        values(n)[d] = value;
      }
    }
  }
  __syncthreads();
}

template <class FactorType, int tile_rows>
__global__ void __launch_bounds__(threads) latent_values(AdaptLatent p) {
  launch_dependents();
  const Shared shared = shared_of<tile_rows>(p.latent);
  const std::int64_t first = (blockIdx.y + 1) * p.rows_a_head - p.width;
  fetch_ahead<FactorType, tile_rows>(p, first);
  wait_for_previous_grid();
  const Head head = head_of(p, first);
  for_runs<tile_rows>(p, [&](const Run& run) {
    if (run.range.begin != run.range.end) adapt_values<FactorType, tile_rows>(p, run, head, shared);
    if (p.rounds)
      round_run<1>(p, run, static_cast<const float*>(p.heads_data) + heads_offset(p, run.first),
                   p.heads_stride, p.width);
  });
}

template <int tile_rows>
LaunchShape shape_of(const AdaptLatent& params, std::size_t shared_bytes) {
  return {.grid = static_cast<unsigned>((params.adapters.rows + tile_rows - 1) / tile_rows),
          .grid_y = static_cast<unsigned>(params.heads),
          .threads = threads,
          .shared_bytes = shared_bytes};
}

// Calls body(rows of a tile).
template <class Body>
void with_tile(const AdaptLatent& params, const Body& body) {
  if (params.adapters.rows <= few_rows) {
    body(std::integral_constant<int, 1>{});
  } else {
    body(std::integral_constant<int, rows_of_prompts>{});
  }
}

}  // namespace

void scale_latent_queries(const AdaptLatent& params, StreamHandle stream) {
  with_tile(params, [&](auto rows) {
    launch("adapters' query gains", scale_queries<rows>, shape_of<rows>(params, 0), stream, params);
  });
}

void adapt_latent_queries(const AdaptLatent& params, StreamHandle stream) {
  with_factor_type(params.adapters.factor_type, [&](auto type) {
    with_tile(params, [&](auto rows) {
      launch("adapters' latent queries", latent_queries<decltype(type), rows>,
             shape_of<rows>(params, shared_bytes<rows>(params.width)), stream, params);
    });
  });
}

void adapt_latent_values(const AdaptLatent& params, StreamHandle stream) {
  with_factor_type(params.adapters.factor_type, [&](auto type) {
    with_tile(params, [&](auto rows) {
      launch("adapters' latent values", latent_values<decltype(type), rows>,
             shape_of<rows>(params, shared_bytes<rows>(params.latent)), stream, params);
    });
  });
}

}  // namespace motley::kernels::cuda
