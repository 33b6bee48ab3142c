#pragma once

#include <cstdint>

// The only place that depends on the compiler: everything here compiles for the CPU and for
// kernels.
#ifdef __CUDACC__
#define MOTLEY_HOST_DEVICE __host__ __device__
#else
#define MOTLEY_HOST_DEVICE
#endif

// Number types narrower than float32. Widening is exact. Narrowing rounds to nearest, ties to even,
// with the same bits on every compiler and device.
namespace motley {

// The result for values beyond the largest finite one.
enum class Overflow : std::uint8_t {
  special,   // infinity, or NaN in a format that has no infinity
  saturate,  // the largest finite value, also for infinities
};

// A binary floating-point format of at most 16 bits: 1 sign bit, `exponent_bits`, `mantissa_bits`.
struct SmallFloat {
  int exponent_bits;
  int mantissa_bits;
  int bias;
  // The code (without sign) of the largest finite value.
  std::uint32_t largest;
  // Codes from here on are special: infinity if has_infinity, then NaN. In a format without special
  // codes this is the largest code plus one.
  bool has_infinity;
  bool has_nan;
};

namespace small_float {

inline constexpr SmallFloat f16{5, 10, 15, 0x7BFF, true, true};
inline constexpr SmallFloat f8_e4m3{4, 3, 7, 0x7E, false, true};
inline constexpr SmallFloat f8_e5m2{5, 2, 15, 0x7B, true, true};
inline constexpr SmallFloat f4_e2m1{2, 1, 1, 0x7, false, false};

// 2^exponent as a normal float32, -126 <= exponent <= 127.
constexpr MOTLEY_HOST_DEVICE float power_of_two(int exponent) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(exponent + 127) << 23);
}

template <SmallFloat format>
constexpr MOTLEY_HOST_DEVICE float widen(std::uint32_t code) {
  constexpr int mantissa_bits = format.mantissa_bits;
  constexpr std::uint32_t sign_bit = 1U << (format.exponent_bits + mantissa_bits);
  const std::uint32_t sign = (code & sign_bit) != 0 ? 0x80000000U : 0U;
  const std::uint32_t magnitude = code & (sign_bit - 1);
  std::uint32_t bits = 0;
  if (magnitude > format.largest) {
    const bool infinity = format.has_infinity && magnitude == format.largest + 1;
    // A NaN keeps its payload and becomes quiet, as in the F16C instruction.
    const std::uint32_t payload = (magnitude << (23 - mantissa_bits)) & 0x007FFFFFU;
    bits = infinity ? 0x7F800000U : (0x7FC00000U | payload);
  } else if ((magnitude >> mantissa_bits) == 0) {
    const float value =
        static_cast<float>(magnitude) * power_of_two(1 - format.bias - mantissa_bits);
    bits = __builtin_bit_cast(std::uint32_t, value);
  } else {
    bits =
        (magnitude << (23 - mantissa_bits)) + (static_cast<std::uint32_t>(127 - format.bias) << 23);
  }
  return __builtin_bit_cast(float, sign | bits);
}

template <SmallFloat format>
constexpr MOTLEY_HOST_DEVICE std::uint32_t narrow(float value, Overflow overflow) {
  constexpr std::uint32_t sign_bit = 1U << (format.exponent_bits + format.mantissa_bits);
  const auto all = __builtin_bit_cast(std::uint32_t, value);
  const std::uint32_t sign = (all & 0x80000000U) != 0 ? sign_bit : 0U;
  const std::uint32_t bits = all & 0x7FFFFFFFU;
  const int shift = 23 - format.mantissa_bits;

  if (bits > 0x7F800000U) {
    // A format without NaN has no good answer; GPUs give the largest value.
    if (!format.has_nan) return format.largest;
    const std::uint32_t exponent = ((1U << format.exponent_bits) - 1) << format.mantissa_bits;
    const std::uint32_t quiet = 1U << (format.mantissa_bits - 1);
    const std::uint32_t payload = (bits & 0x007FFFFFU) >> shift;
    // Without infinity, only the code with all bits set is NaN.
    if (!format.has_infinity) return sign | exponent | ((1U << format.mantissa_bits) - 1);
    return sign | exponent | quiet | payload;
  }

  std::uint32_t code = 0;
  const std::uint32_t smallest_normal = static_cast<std::uint32_t>(128 - format.bias) << 23;
  if (bits < smallest_normal) {
    // In units of the smallest subnormal. Adding and subtracting 2^23 rounds to an integer, ties to
    // even; a carry correctly gives the smallest normal number.
    const float units =
        __builtin_bit_cast(float, bits) * power_of_two(format.bias - 1 + format.mantissa_bits);
    code = static_cast<std::uint32_t>((units + 0x1p23F) - 0x1p23F);
  } else {
    const std::uint32_t half = (1U << (shift - 1)) - 1 + ((bits >> shift) & 1U);
    code = ((bits + half) >> shift) -
           (static_cast<std::uint32_t>(127 - format.bias) << format.mantissa_bits);
  }
  if (code > format.largest) {
    code = overflow == Overflow::saturate || !format.has_nan ? format.largest : format.largest + 1;
  }
  return sign | code;
}

}  // namespace small_float

// IEEE binary16.
struct f16 {
  std::uint16_t bits;

  static constexpr MOTLEY_HOST_DEVICE f16 from(float value, Overflow overflow = Overflow::special) {
    return {static_cast<std::uint16_t>(small_float::narrow<small_float::f16>(value, overflow))};
  }
  constexpr MOTLEY_HOST_DEVICE float to_float() const {
    return small_float::widen<small_float::f16>(bits);
  }
};

// The upper half of a float32.
struct bf16 {
  std::uint16_t bits;

  static constexpr MOTLEY_HOST_DEVICE bf16 from(float value) {
    const auto all = __builtin_bit_cast(std::uint32_t, value);
    // A NaN keeps its sign and upper payload, and becomes quiet; rounding could make it infinite.
    if ((all & 0x7FFFFFFFU) > 0x7F800000U)
      return {static_cast<std::uint16_t>((all >> 16) | 0x0040U)};
    return {static_cast<std::uint16_t>((all + 0x7FFFU + ((all >> 16) & 1U)) >> 16)};
  }
  constexpr MOTLEY_HOST_DEVICE float to_float() const {
    return __builtin_bit_cast(float, static_cast<std::uint32_t>(bits) << 16);
  }
};

// 4 exponent and 3 mantissa bits, no infinities, NaN only at 0x7F and 0xFF, largest 448 ("e4m3fn").
struct f8_e4m3 {
  std::uint8_t bits;

  static constexpr MOTLEY_HOST_DEVICE f8_e4m3 from(float value,
                                                   Overflow overflow = Overflow::saturate) {
    return {static_cast<std::uint8_t>(small_float::narrow<small_float::f8_e4m3>(value, overflow))};
  }
  constexpr MOTLEY_HOST_DEVICE float to_float() const {
    return small_float::widen<small_float::f8_e4m3>(bits);
  }
};

// 5 exponent and 2 mantissa bits, infinities and NaN as in IEEE formats, largest 57344.
struct f8_e5m2 {
  std::uint8_t bits;

  static constexpr MOTLEY_HOST_DEVICE f8_e5m2 from(float value,
                                                   Overflow overflow = Overflow::saturate) {
    return {static_cast<std::uint8_t>(small_float::narrow<small_float::f8_e5m2>(value, overflow))};
  }
  constexpr MOTLEY_HOST_DEVICE float to_float() const {
    return small_float::widen<small_float::f8_e5m2>(bits);
  }
};

// A power of two, 2^(bits - 127), as block scales have it; 255 is NaN, there is no zero and no
// sign.
struct f8_e8m0 {
  std::uint8_t bits;

  // The smallest power of two that is at least |value|, so that a scale never makes its block
  // overflow; at least 2^-127. NaN for NaN, infinity and values above 2^127.
  static constexpr MOTLEY_HOST_DEVICE f8_e8m0 from_rounded_up(float value) {
    const std::uint32_t magnitude = __builtin_bit_cast(std::uint32_t, value) & 0x7FFFFFFFU;
    if (magnitude > 0x7F000000U) return {255};
    // 2^-127 is the float32 subnormal 0x00400000; everything up to it rounds to code 0, the other
    // subnormals to 2^-126.
    if (magnitude <= 0x00400000U) return {0};
    return {static_cast<std::uint8_t>((magnitude + 0x007FFFFFU) >> 23)};
  }
  constexpr MOTLEY_HOST_DEVICE float to_float() const {
    if (bits == 255) return __builtin_bit_cast(float, 0x7FC00000U);
    if (bits == 0) return __builtin_bit_cast(float, 0x00400000U);
    return __builtin_bit_cast(float, static_cast<std::uint32_t>(bits) << 23);
  }
};

// 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives; the code is the low half of `bits`. In memory two
// share a byte, the first in the low half.
struct f4_e2m1 {
  std::uint8_t bits;

  // Saturates: the format has neither infinity nor NaN (NaN becomes 6).
  static constexpr MOTLEY_HOST_DEVICE f4_e2m1 from(float value) {
    return {static_cast<std::uint8_t>(
        small_float::narrow<small_float::f4_e2m1>(value, Overflow::saturate))};
  }
  constexpr MOTLEY_HOST_DEVICE float to_float() const {
    return small_float::widen<small_float::f4_e2m1>(bits & 15U);
  }
};

}  // namespace motley
