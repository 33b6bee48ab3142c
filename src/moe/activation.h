#pragma once

#include <algorithm>
#include <cmath>

#include "moe/experts.h"

namespace motley::moe {

// One element of h from its gate and up, in float32. NaN stays NaN.
inline float activate(const ExpertWeights& weights, float gate, float up) {
  switch (weights.activation) {
    case ActivationKind::silu_mul:
      return gate / (1.0F + std::exp(-gate)) * up;
    case ActivationKind::clamped_swiglu: {
      const float limit = weights.swiglu_limit;
      const float g = std::min(gate, limit);
      const float u = std::clamp(up, -limit, limit);
      return (u + 1.0F) * (g / (1.0F + std::exp(-weights.swiglu_alpha * g)));
    }
  }
  return 0;
}

}  // namespace motley::moe
