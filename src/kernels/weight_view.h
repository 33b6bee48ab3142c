#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace motley::kernels {

// The layout of a weight matrix [out, in] in memory, as kernels see it. Row-major, one row of `in`
// inputs after the other; each row begins at a whole byte.
enum class WeightKind : std::uint8_t {
  f32,
  f16,
  bf16,
  f8_block,    // f8_e4m3; scale of element (o, k) is scales[o / block_rows][k / block_columns]
  int4_group,  // two to a byte, the low half first, offset-binary (code 8 is zero); scale of
               // element (o, k) is scales[o][k / block_columns]
};

// The true sizes, without padding.
struct WeightView {
  WeightKind kind = WeightKind::f32;
  const void* data = nullptr;
  const float* scales = nullptr;  // row-major [ceil(out / block_rows), ceil(in / block_columns)]
  std::int64_t out = 0;
  std::int64_t in = 0;
  std::int64_t block_rows = 1;
  std::int64_t block_columns = 0;  // 0 where the kind has no scales
};

}  // namespace motley::kernels
