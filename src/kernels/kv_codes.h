#pragma once

#include <cstdint>

#include "base/number_types.h"

// Keys and values as 8-bit codes (e4m3), the same bits on every device. Each token of a head has an
// exponent: a number is code * 2^(exponent - 127).
namespace motley::kernels {

// Bounds of exponents. With them every number is normal in float32 and bf16, and a GPU widens a
// code and scales it with one product (2^(exponent - 127 + 120) is a bf16). Larger numbers than
// 448 * 2^7 = 57344 saturate.
inline constexpr std::uint8_t min_kv_exponent = 16;
inline constexpr std::uint8_t max_kv_exponent = 134;
// Of numbers whose scale is the checkpoint's.
inline constexpr std::uint8_t no_kv_exponent = 127;
// Of a token's head with a number that is not finite: all its numbers are NaN.
inline constexpr std::uint8_t nan_kv_exponent = 255;

// What is largest of the magnitudes so far and |x|. NaN counts as infinity.
constexpr MOTLEY_HOST_DEVICE std::uint32_t kv_largest(std::uint32_t largest_bits, float x) {
  const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, x) & 0x7FFFFFFFU;
  return bits > largest_bits ? bits : largest_bits;
}
// The exponent of the smallest power of two with which the largest magnitude, as bits, does not
// exceed e4m3's largest number, 448 = 1.75 * 2^8.
constexpr MOTLEY_HOST_DEVICE std::uint8_t kv_exponent(std::uint32_t largest_bits) {
  if (largest_bits >= 0x7F800000U) return nan_kv_exponent;
  const int exponent = static_cast<int>(largest_bits >> 23) - 8 +
                       ((largest_bits & 0x007FFFFFU) > 0x00600000U ? 1 : 0);
  return exponent < min_kv_exponent   ? min_kv_exponent
         : exponent > max_kv_exponent ? max_kv_exponent
                                      : static_cast<std::uint8_t>(exponent);
}
// The same with the checkpoint's scale.
constexpr MOTLEY_HOST_DEVICE std::uint8_t kv_exponent_of_fixed(std::uint32_t largest_bits) {
  return largest_bits >= 0x7F800000U ? nan_kv_exponent : no_kv_exponent;
}

// 2^(exponent - 127) and its inverse.
constexpr MOTLEY_HOST_DEVICE float kv_power(std::uint8_t exponent) {
  return __builtin_bit_cast(
      float, exponent == nan_kv_exponent ? 0x7FC00000U : std::uint32_t{exponent} << 23);
}
constexpr MOTLEY_HOST_DEVICE float kv_inverse_power(std::uint8_t exponent) {
  return __builtin_bit_cast(float,
                            exponent == nan_kv_exponent ? 0x3F800000U : (254U - exponent) << 23);
}

// The code of a number. Those of a NaN or an infinity have no meaning, and are no NaN.
constexpr MOTLEY_HOST_DEVICE std::uint8_t kv_code(float scaled) {
  return f8_e4m3::from(scaled == scaled ? scaled : 0.0F).bits;
}

// What all codes of pages are multiplied by, beside their exponents.
constexpr MOTLEY_HOST_DEVICE float kv_factor(float fixed_scale) {
  return fixed_scale > 0 ? fixed_scale : 1.0F;
}

}  // namespace motley::kernels
