// Decodes elements of stored weights one by one.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "kernels/weight_view.h"

namespace motley::kernels::cuda {

__device__ inline float f8_value(unsigned char code) {
  __nv_fp8_e4m3 number;
  number.__x = code;
  return static_cast<float>(number);
}

// Element (row, column), as the format defines it.
__device__ inline float decode(const WeightView& w, std::int64_t row, std::int64_t column) {
  const std::int64_t index = row * w.in + column;
  switch (w.kind) {
    case WeightKind::f32:
      return static_cast<const float*>(w.data)[index];
    case WeightKind::f16:
      return __half2float(static_cast<const __half*>(w.data)[index]);
    case WeightKind::bf16:
      return __bfloat162float(static_cast<const __nv_bfloat16*>(w.data)[index]);
    case WeightKind::f8_e4m3: {
      const float code = f8_value(static_cast<const unsigned char*>(w.data)[index]);
      const std::int64_t block = row / w.block_rows * w.groups() + column / w.block_columns;
      return code * w.plain_scales()[block];
    }
    case WeightKind::int4: {
      const std::int64_t row_bytes = (w.in + 1) / 2;
      const int byte = static_cast<const unsigned char*>(w.data)[row * row_bytes + column / 2];
      const int code = column % 2 == 0 ? byte & 15 : byte >> 4;
      const std::int64_t group = row * w.groups() + column / w.block_columns;
      return static_cast<float>(code - 8) * w.plain_scales()[group];
    }
    case WeightKind::i8:
    case WeightKind::f4_e2m1:
      break;  // decoded when they are loaded
  }
  return 0;
}

}  // namespace motley::kernels::cuda
