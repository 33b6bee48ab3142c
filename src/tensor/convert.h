#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"

namespace motley::tensor {

// Whether widen() reads this type: every one but the wide ones that are only carried (dtype.h) and
// 64-bit integers, which float32 can't hold.
bool can_widen(DType dtype);

// Elements [first, first + out.size()) of packed memory as float32, exactly (i32 rounds to
// nearest). `from` may begin at any byte; a BOOL that is not 0 counts as 1.
void widen(DType dtype, const std::byte* from, std::int64_t first, std::span<float> out);

// The other way, rounding to nearest, ties to even: to f32, f16, bf16 or an 8-bit float. Values
// beyond the range become infinite in f16 and saturate in the 8-bit formats.
void narrow(DType dtype, std::span<const float> from, std::byte* to);

}  // namespace motley::tensor
