// What a label's adapters have for an expert.
#pragma once

#include "kernels/cuda/expert_factors.cuh"
#include "kernels/cuda/grouped/layer.cuh"

namespace motley::kernels::cuda::grouped {

// `entries`: most_terms of them, those that have nothing behind the others.
__device__ inline void resolve_terms(const LayerParams& p, int label, int expert, int seam,
                                     DeltaEntry* entries) {
  const float unit = p.unit;
  const int begin = p.term_begin[label];
  const int end = p.term_begin[label + 1];
  int count = 0;
  int column = 0;
  for (int i = begin; i < end; ++i) {
    const AdapterTerm term = p.terms[i];
    const FactorEntry factor = expert_factor(term, p.layer, 2, seam, expert);
    if (factor.rank == 0) continue;
    entries[count++] = {
        .a = static_cast<const unsigned char*>(factor.a),
        .b = static_cast<const unsigned char*>(factor.b),
        .rank = static_cast<std::int16_t>(factor.rank),
        .split = static_cast<std::int16_t>(factor.split),
        .column = column,
        .scale = {factor.scale[0] * term.scale * unit, factor.scale[1] * term.scale * unit}};
    column += factor.rank;
  }
  for (; count < p.most_terms; ++count) entries[count].rank = 0;
}

}  // namespace motley::kernels::cuda::grouped
