// What an adapter has for an expert, as kernels look it up.
#pragma once

#include <cstddef>

#include "kernels/adapter_tables.h"

namespace motley::kernels::cuda {

// Rank 0 where the adapter has nothing on this layer or for this expert. `kinds`: 3 (gate, up,
// down) where pages hold rows, 2 (gate with up, down) where they hold images.
__device__ inline FactorEntry expert_factor(const AdapterTerm& term, int layer, int kinds, int kind,
                                            int expert) {
  if (layer >= term.expert_layers || expert >= term.experts) return {};
  const std::size_t row = static_cast<std::size_t>(layer) * kinds + kind;
  return term.expert_factors[row * term.experts + expert];
}

}  // namespace motley::kernels::cuda
