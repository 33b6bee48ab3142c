// Decodes elements of stored weights one by one, in the order of their columns.
#pragma once

#include <cstdint>

#include <cuda_fp8.h>

#include "base/number_types.h"
#include "kernels/weight_view.h"

namespace motley::kernels::cuda {

__device__ inline float f8_value(std::uint8_t code) {
  __nv_fp8_e4m3 number;
  number.__x = code;
  return static_cast<float>(number);
}

// Number `at` of numbers of T at any address.
template <class T>
__device__ inline T read_any(const void* numbers, std::int64_t at, bool aligned) {
  if (aligned) return static_cast<const T*>(numbers)[at];
  const auto* const from =
      static_cast<const unsigned char*>(numbers) + at * std::int64_t{sizeof(T)};
  std::uint32_t bits = 0;
#pragma unroll
  for (unsigned i = 0; i < sizeof(T); ++i) bits |= std::uint32_t{from[i]} << (8 * i);
  if constexpr (sizeof(T) == sizeof(float)) {
    return __builtin_bit_cast(T, bits);
  } else {
    return __builtin_bit_cast(T, static_cast<std::uint16_t>(bits));
  }
}

// Scale `at` of a weight; device memory holds scales at their own alignment.
__device__ inline float scale_at(const WeightView& w, std::int64_t at) {
  switch (w.scale_type) {
    case DType::f16:
      return static_cast<const f16*>(w.scales)[at].to_float();
    case DType::bf16:
      return static_cast<const bf16*>(w.scales)[at].to_float();
    case DType::f8_e4m3:
      return f8_value(static_cast<const std::uint8_t*>(w.scales)[at]);
    case DType::f8_e8m0:
      return static_cast<const f8_e8m0*>(w.scales)[at].to_float();
    default:
      return static_cast<const float*>(w.scales)[at];
  }
}

// The code of element (row, column) as a number, zero points not yet subtracted. `aligned`: f32,
// f16 and bf16 stand at their own alignment.
template <WeightKind kind>
__device__ inline float code_at(const WeightView& w, std::int64_t row, std::int64_t column,
                                bool aligned) {
  const std::int64_t at = row * w.in + column;
  if constexpr (kind == WeightKind::f32) return read_any<float>(w.data, at, aligned);
  if constexpr (kind == WeightKind::f16) return read_any<f16>(w.data, at, aligned).to_float();
  if constexpr (kind == WeightKind::bf16) return read_any<bf16>(w.data, at, aligned).to_float();
  const auto* const bytes = static_cast<const std::uint8_t*>(w.data);
  if constexpr (kind == WeightKind::f8_e4m3) return f8_value(bytes[at]);
  if constexpr (kind == WeightKind::i8)
    return static_cast<float>(static_cast<std::int8_t>(bytes[at]));
  const unsigned pair = bytes[row * ((w.in + 1) / 2) + column / 2];
  const unsigned code = column % 2 == 0 ? pair & 15U : pair >> 4;
  if constexpr (kind == WeightKind::f4_e2m1)
    return f4_e2m1{static_cast<std::uint8_t>(code)}.to_float();
  return static_cast<float>(code);
}

// The code that means zero where there are no zero points.
constexpr MOTLEY_HOST_DEVICE float middle_code(WeightKind kind) {
  return kind == WeightKind::int4 ? 8 : 0;
}
// What stored zero points are above their codes.
constexpr MOTLEY_HOST_DEVICE float zero_offset(WeightKind kind) {
  return kind == WeightKind::i8 ? 128 : 0;
}

// Element (row, column), as the format defines it.
template <WeightKind kind>
__device__ inline float decode(const WeightView& w, std::int64_t row, std::int64_t column,
                               bool aligned) {
  const float code = code_at<kind>(w, row, column, aligned);
  if (w.scales == nullptr) return code - middle_code(kind);
  const std::int64_t at = row / w.block_rows * w.groups() + column / w.block_columns;
  const float zero =
      w.zero_points != nullptr ? w.zero_points[at] - zero_offset(kind) : middle_code(kind);
  return (code - zero) * (scale_at(w, at) * w.scale_factor);
}

// The same for a weight at its own alignment.
__device__ inline float decode(const WeightView& w, std::int64_t row, std::int64_t column) {
  switch (w.kind) {
    case WeightKind::f32:
      return decode<WeightKind::f32>(w, row, column, true);
    case WeightKind::f16:
      return decode<WeightKind::f16>(w, row, column, true);
    case WeightKind::bf16:
      return decode<WeightKind::bf16>(w, row, column, true);
    case WeightKind::f8_e4m3:
      return decode<WeightKind::f8_e4m3>(w, row, column, true);
    case WeightKind::i8:
      return decode<WeightKind::i8>(w, row, column, true);
    case WeightKind::int4:
      return decode<WeightKind::int4>(w, row, column, true);
    case WeightKind::f4_e2m1:
      return decode<WeightKind::f4_e2m1>(w, row, column, true);
  }
  return 0;
}

}  // namespace motley::kernels::cuda
