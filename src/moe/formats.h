#pragma once

#include "moe/experts.h"
#include "quant/formats.h"

namespace motley::moe {

inline bool is_known_activation(ActivationKind activation) {
  switch (activation) {
    case ActivationKind::silu_mul:
    case ActivationKind::clamped_swiglu:
      return true;
  }
  return false;
}

}  // namespace motley::moe
