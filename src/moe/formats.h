#pragma once

#include "moe/experts.h"
#include "quant/weight.h"

namespace motley::moe {

// Weight formats that the plain loops support on every device and the conformance suite covers.
inline bool is_known_format(const quant::Format& format) {
  using Scales = quant::Format::Scales;
  switch (format.scales) {
    case Scales::none:
      return (format.element == DType::f32 && format.bits == 32) ||
             ((format.element == DType::f16 || format.element == DType::bf16) && format.bits == 16);
    case Scales::group:
      return format.element == DType::i8 && format.bits == 4 && format.block_rows == 1 &&
             (format.block_columns == 32 || format.block_columns == 64 ||
              format.block_columns == 128);
    case Scales::block:
      return format.element == DType::f8_e4m3 && format.bits == 8 && format.block_rows > 0 &&
             format.block_columns > 0;
  }
  return false;
}

inline bool is_known_activation(ActivationKind activation) {
  switch (activation) {
    case ActivationKind::silu_mul:
    case ActivationKind::clamped_swiglu:
      return true;
  }
  return false;
}

}  // namespace motley::moe
