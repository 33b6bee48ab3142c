#pragma once

#include <optional>
#include <string>

#include "base/cat.h"
#include "moe/backend.h"
#include "moe/problem.h"

namespace motley::moe {

// Weight formats that the CPU's kernels have loops for, and the conformance suite has cases for.
inline bool is_cpu_format(const quant::Format& format) {
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

// What every backend of the CPU asks for.
inline Support supports_on_cpu(const Problem& problem) {
  if (problem.device != tensor::DeviceKind::cpu) return Support::no("it runs on the CPU only");
  for (const quant::Format* format : {&problem.gate_up, &problem.down}) {
    if (!is_cpu_format(*format))
      return Support::no(cat("it has no loops for weights in ", to_string(*format)));
  }
  switch (problem.activation) {
    case ActivationKind::silu_mul:
    case ActivationKind::clamped_swiglu:
      return Support::yes();
  }
  return Support::no("it does not know the activation");
}

}  // namespace motley::moe
