#pragma once

#include <cstdint>
#include <span>

#include "base/dtype.h"

namespace motley::gpu_tests {

// The codes of every number of bf16 over a scale, by input_codes::Divisor and by a division.
struct DividedCodes {
  std::int64_t different = 0;
  // Of one that differs.
  std::uint32_t input = 0, code = 0, wanted = 0;
};
DividedCodes compare_divided_codes(DType type, float scale);

}  // namespace motley::gpu_tests
