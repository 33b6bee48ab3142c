#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"

namespace motley::tensor {

// Whether widen() supports the type: all except 64-bit integers and floats, which float32 cannot
// hold.
bool can_widen(DType dtype);

// Elements [first, first + out.size()) of packed memory as float32, exactly (i32 rounds to
// nearest). `from` may have any alignment; a BOOL that is not 0 counts as 1.
void widen(DType dtype, const std::byte* from, std::int64_t first, std::span<float> out);

// The reverse, rounding to nearest, ties to even: to f32, f16, bf16 or an 8-bit float. Values
// beyond the range become infinite in f16 and saturate in the 8-bit formats.
void narrow(DType dtype, std::span<const float> from, std::byte* to);

}  // namespace motley::tensor
