#include "kernels/cuda/adapters/adapters.cuh"
#include "kernels/cuda/adapters/adapters.h"
#include "kernels/cuda/primitives/launch.cuh"

namespace motley::kernels::cuda {
namespace {

constexpr int threads = 128;

// One block per row; a thread takes every 128th number of it. A column of A is a row of its table,
// so the row in rank space is that table row, scaled.
template <class FactorType, class Tables>
__global__ void __launch_bounds__(threads) adapt(AdaptEmbedding p) {
  wait_for_previous_grid();
  launch_dependents();
  const std::int64_t row = blockIdx.x;
  const TermRange range = terms_of(p.adapters, p.adapters.labels[row]);
  const std::int64_t id = p.ids[row];
  if (range.begin == range.end || id < 0 || id >= p.vocabulary) return;
  float* const out = p.out + row * p.out_stride;
  for (std::int64_t o = threadIdx.x; o < p.width; o += threads) {
    float value = out[o];
    for (int i = range.begin; i < range.end; ++i) {
      const AdapterTerm term = p.adapters.terms[i];
      if (!has_site(p.adapters, term, p.site)) continue;
      const SiteEntry entry = term.sites[p.site];
      if (entry.replaced != nullptr) value = number_at<Tables>(entry.replaced, id * p.width + o);
      const FactorEntry& factor = entry.factor;
      if (factor.rank == 0) continue;
      float delta = 0;
      for (int r = 0; r < factor.rank; r += 8) {
        float a[8];
        float b[8];
        load_vec8<FactorType>(factor.a, id * factor.split + r, a);
        load_vec8<FactorType>(factor.b, o * factor.split + r, b);
#pragma unroll
        for (int e = 0; e < 8; ++e) delta = fmaf(a[e], b[e], delta);
      }
      const float scale = factor.scale[0] * term.scale *
                          row_scale<FactorType>(factor.a, p.vocabulary, factor.split, id) *
                          row_scale<FactorType>(factor.b, p.width, factor.split, o);
      value = __fmaf_rn(scale, delta, value);
    }
    out[o] = value;
  }
}

}  // namespace

void adapt_embedding(const AdaptEmbedding& params, StreamHandle stream) {
  if (params.adapters.rows == 0) return;
  const auto kernel = params.adapters.factor_type == DType::f32    ? adapt<FactorF32, FactorF32>
                      : params.adapters.factor_type == DType::bf16 ? adapt<FactorBf16, FactorBf16>
                                                                   : adapt<FactorF8, FactorBf16>;
  launch("adapters' embedding", kernel,
         {.grid = static_cast<unsigned>(params.adapters.rows), .threads = threads}, stream, params);
}

}  // namespace motley::kernels::cuda
