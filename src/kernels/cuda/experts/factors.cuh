// How kernels look up an adapter's factors for an expert.
#pragma once

#include <cstddef>

#include "kernels/adapter_tables.h"
#include "kernels/cuda/experts/plan.h"

namespace motley::kernels::cuda {

// Rank 0 if the adapter has no factor for this layer or this expert. `kinds`: 3 (gate, up, down)
// for the row layout of adapter memory, 2 (gate with up, down) for the packed layout.
__device__ inline FactorEntry expert_factor(const AdapterTerm& term, int layer, int kinds, int kind,
                                            int expert) {
  if (layer >= term.expert_layers || expert >= term.experts) return {};
  const std::size_t row = static_cast<std::size_t>(layer) * kinds + kind;
  return term.expert_factors[row * term.experts + expert];
}

// Finds the factors of a label's adapters for an expert at one seam: max_terms `entries`.
__device__ inline void resolve_terms(const PlanDeltas& deltas, int label, int expert, int seam,
                                     DeltaEntry* entries) {
  const int begin = deltas.term_begin[label];
  const int end = deltas.term_begin[label + 1];
  int count = 0;
  int column = 0;
#pragma unroll 1
  for (int i = begin; i < end; ++i) {
    const AdapterTerm term = deltas.terms[i];
    const FactorEntry factor = expert_factor(term, deltas.layer, 2, seam, expert);
    if (factor.rank == 0) continue;
    const float scale = term.scale * deltas.unit;
    entries[count++] = {.a = static_cast<const unsigned char*>(factor.a),
                        .b = static_cast<const unsigned char*>(factor.b),
                        .rank = static_cast<std::int16_t>(factor.rank),
                        .split = static_cast<std::int16_t>(factor.split),
                        .column = column,
                        .scale = {factor.scale[0] * scale, factor.scale[1] * scale}};
    column += factor.rank;
  }
  for (; count < deltas.max_terms; ++count) entries[count].rank = 0;
}

}  // namespace motley::kernels::cuda
