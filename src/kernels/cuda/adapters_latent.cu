// kv_b of MLA in absorbed form: a block is a row and a head.

#include "kernels/cuda/adapters.cuh"
#include "kernels/cuda/adapters.h"
#include "kernels/cuda/queue.cuh"

namespace motley::kernels::cuda {
namespace {

constexpr int threads = 128;
constexpr int warps = threads / 32;
// Ranks that a block keeps at a time.
constexpr int ranks_at_once = 64;

__device__ std::int64_t head_offset(const AdaptLatent& p) {
  return std::int64_t{blockIdx.x} * p.heads_stride + std::int64_t{blockIdx.y} * p.heads_head_stride;
}
__device__ float* latent_row(const AdaptLatent& p) {
  return p.latent_data + std::int64_t{blockIdx.x} * p.latent_stride +
         std::int64_t{blockIdx.y} * p.latent_head_stride;
}

__global__ void __launch_bounds__(threads) scale_queries(AdaptLatent p) {
  wait_for_previous_grid();
  launch_dependents();
  const TermRange range = terms_of(p.adapters, p.adapters.labels[blockIdx.x]);
  if (range.end != range.begin + 1) return;
  const AdapterTerm term = p.adapters.terms[range.begin];
  if (!has_site(p.adapters, term, p.site)) return;
  const float* const all_gains = term.sites[p.site].gain;
  if (all_gains == nullptr) return;
  const float* const gain = all_gains + blockIdx.y * p.rows_a_head;
  const std::int64_t at = head_offset(p);
  for (std::int64_t d = threadIdx.x; d < p.width; d += threads)
    store_activation(p.heads_data, p.heads_type, at + d,
                     activation_at(p.heads_data, p.heads_type, at + d) * gain[d]);
}

// latent += A^T (scale * B_keys^T q), a term and some of its ranks at a time.
template <class Pages>
__global__ void __launch_bounds__(threads) latent_queries(AdaptLatent p) {
  __shared__ float ranks[ranks_at_once];
  wait_for_previous_grid();
  launch_dependents();
  const TermRange range = terms_of(p.adapters, p.adapters.labels[blockIdx.x]);
  const std::int64_t q = head_offset(p);
  const std::int64_t first = blockIdx.y * p.rows_a_head;
  const std::int64_t out = p.heads * p.rows_a_head;
  float* const latent = latent_row(p);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int i = range.begin; i < range.end; ++i) {
    const AdapterTerm term = p.adapters.terms[i];
    if (!has_site(p.adapters, term, p.site)) continue;
    const FactorEntry factor = term.sites[p.site].factor;
    const float scale = factor.scale[0] * term.scale;
    for (int begin = 0; begin < factor.rank; begin += ranks_at_once) {
      const int count = min(ranks_at_once, factor.rank - begin);
      for (int r = warp; r < count; r += warps) {
        float sum = 0;
        for (std::int64_t d = lane; d < p.width; d += 32)
          sum = fmaf(activation_at(p.heads_data, p.heads_type, q + d),
                     row_scale<Pages>(factor.b, out, factor.split, first + d) *
                         number_at<Pages>(factor.b, (first + d) * factor.split + begin + r),
                     sum);
        sum = sum_of_warp(sum);
        if (lane == 0)
          ranks[r] = scale * sum * row_scale<Pages>(factor.a, factor.split, p.latent, begin + r);
      }
      __syncthreads();
      for (std::int64_t k = threadIdx.x; k < p.latent; k += threads) {
        float sum = latent[k];
        for (int r = 0; r < count; ++r)
          sum = fmaf(ranks[r], number_at<Pages>(factor.a, (begin + r) * p.latent + k), sum);
        latent[k] = sum;
      }
      __syncthreads();
    }
  }
}

// values = (values + scale * (B_values (A latent) + lora_bias)) x gain.
template <class Pages>
__global__ void __launch_bounds__(threads) latent_values(AdaptLatent p) {
  __shared__ float ranks[ranks_at_once];
  wait_for_previous_grid();
  launch_dependents();
  const TermRange range = terms_of(p.adapters, p.adapters.labels[blockIdx.x]);
  const std::int64_t out = p.heads * p.rows_a_head;
  const std::int64_t first = (blockIdx.y + 1) * p.rows_a_head - p.width;
  float* const values = static_cast<float*>(p.heads_data) + head_offset(p);
  const float* const latent = latent_row(p);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int i = range.begin; i < range.end; ++i) {
    const AdapterTerm term = p.adapters.terms[i];
    if (!has_site(p.adapters, term, p.site)) continue;
    const SiteEntry entry = term.sites[p.site];
    const FactorEntry& factor = entry.factor;
    const float scale = factor.scale[0] * term.scale;
    for (int begin = 0; begin < factor.rank; begin += ranks_at_once) {
      const int count = min(ranks_at_once, factor.rank - begin);
      for (int r = warp; r < count; r += warps) {
        float sum = 0;
        for (std::int64_t k = lane; k < p.latent; k += 32)
          sum = fmaf(number_at<Pages>(factor.a, (begin + r) * p.latent + k), latent[k], sum);
        sum = sum_of_warp(sum);
        if (lane == 0)
          ranks[r] = scale * row_scale<Pages>(factor.a, factor.split, p.latent, begin + r) * sum;
      }
      __syncthreads();
      for (std::int64_t d = threadIdx.x; d < p.width; d += threads) {
        float sum = 0;
        for (int r = 0; r < count; ++r)
          sum = fmaf(number_at<Pages>(factor.b, (first + d) * factor.split + begin + r), ranks[r],
                     sum);
        values[d] =
            __fmaf_rn(row_scale<Pages>(factor.b, out, factor.split, first + d), sum, values[d]);
      }
      __syncthreads();
    }
    // A thread's own numbers: nobody waits.
    for (std::int64_t d = threadIdx.x; d < p.width; d += threads) {
      float value = values[d];
      if (entry.lora_bias != nullptr) value = __fmaf_rn(scale, entry.lora_bias[first + d], value);
      if (entry.gain != nullptr) value = __fmul_rn(value, entry.gain[first + d]);
      values[d] = value;
    }
  }
}

LaunchShape shape_of(const AdaptLatent& params) {
  return {.grid = static_cast<unsigned>(params.adapters.rows),
          .grid_y = static_cast<unsigned>(params.heads),
          .threads = threads};
}

}  // namespace

void scale_latent_queries(const AdaptLatent& params, StreamHandle stream) {
  queue("adapters' query gains", scale_queries, shape_of(params), stream, params);
}

void adapt_latent_queries(const AdaptLatent& params, StreamHandle stream) {
  with_pages(params.adapters.pages, [&](auto pages) {
    queue("adapters' latent queries", latent_queries<decltype(pages)>, shape_of(params), stream,
          params);
  });
}

void adapt_latent_values(const AdaptLatent& params, StreamHandle stream) {
  with_pages(params.adapters.pages, [&](auto pages) {
    queue("adapters' latent values", latent_values<decltype(pages)>, shape_of(params), stream,
          params);
  });
}

}  // namespace motley::kernels::cuda
