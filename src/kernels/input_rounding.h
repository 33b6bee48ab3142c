#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/number_types.h"
#include "kernels/weight_view.h"

// The arithmetic of InputRounding, number by number.
namespace motley::kernels {

inline constexpr float largest_f8_input = 448;

// The scale of inputs whose largest magnitude is this.
constexpr MOTLEY_HOST_DEVICE float input_scale(const InputRounding& rounding, float largest) {
  constexpr float least_magnitude = 1e-10F;
  const auto larger = [](float a, float b) { return a < b ? b : a; };
  if (rounding.scales == InputRounding::Scales::fixed) return rounding.scale;
  if (rounding.type == DType::i8) return largest / 127;
  // Rows of nothing but tiny numbers still have scales that can be divided by.
  if (rounding.scales == InputRounding::Scales::row)
    return larger(largest / largest_f8_input, 1 / (largest_f8_input * 512));
  const float scale = larger(largest, least_magnitude) / largest_f8_input;
  if (!rounding.power_of_two) return scale;
  const std::uint32_t up = __builtin_bit_cast(std::uint32_t, scale) + 0x007FFFFFU;
  return __builtin_bit_cast(float, up & 0xFF800000U);
}

// What the code of x / scale means. A NaN stays one.
constexpr MOTLEY_HOST_DEVICE float rounded_input(const InputRounding& rounding, float scale,
                                                 float x) {
  if (scale == 0) return 0;
  const float ratio = x / scale;
  if (rounding.type == DType::i8) {
    // Adding 1.5 * 2^23 leaves the nearest integer in the low bits.
    constexpr float unit_places = 12582912;
    const float bounded = ratio > 1024 ? 1024 : ratio < -1024 ? -1024 : ratio;
    float code = (bounded + unit_places) - unit_places + rounding.zero;
    code = code > 127 ? 127 : code < -128 ? -128 : code;
    return (code - rounding.zero) * scale;
  }
  // Adding the power of two whose last place is that of the code's leaves the nearest code: three
  // bits behind the first one, but 2^-9 at least.
  const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, ratio);
  const float magnitude = __builtin_bit_cast(float, bits & 0x7FFFFFFFU);
  const float bounded = magnitude > largest_f8_input ? largest_f8_input : magnitude;
  const std::uint32_t power =
      (__builtin_bit_cast(std::uint32_t, bounded) & 0x7F800000U) + (20U << 23);
  float places = __builtin_bit_cast(float, power);
  if (places < 16384) places = 16384;
  const float code = (bounded + places) - places;
  const std::uint32_t sign = bits & 0x80000000U;
  return __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, code) | sign) * scale;
}

// Rows as codes of 8 bits, with the scales of every 128 columns behind them.
struct RowCodes {
  unsigned char* codes = nullptr;  // [rows, width]
  float* scales = nullptr;         // [ceil(width / 128), pitch]
  std::int64_t pitch = 0;
};
// Where bf16 rows would be. The width is a multiple of 4.
inline MOTLEY_HOST_DEVICE RowCodes row_codes_in(void* data, std::int64_t rows, std::int64_t width) {
  auto* const codes = static_cast<unsigned char*>(data);
  return {.codes = codes, .scales = reinterpret_cast<float*>(codes + rows * width), .pitch = rows};
}

}  // namespace motley::kernels
