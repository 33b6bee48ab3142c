#pragma once

#include <cstdint>

#include "kernels/weight_view.h"

namespace motley::quant {

// Scales of a row of inputs that ranks cut, where ranks have inputs of one.
struct CutScales {
  std::int64_t count = 0;  // of a whole row; 0: each scale is of one rank's inputs
  std::int64_t first = 0;  // of them, the first that this rank has inputs of
};

// A rank's part of a row of inputs.
struct CutInputs {
  std::int64_t whole = 0;  // inputs of the row
  std::int64_t begin = 0;  // the first of the part
  std::int64_t unit = 0;   // every rank's part begins at a multiple of it
};
CutScales cut_scales(const kernels::InputRounding& rounding, const CutInputs& inputs);

}  // namespace motley::quant
