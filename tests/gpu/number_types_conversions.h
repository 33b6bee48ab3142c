#pragma once

#include <cstdint>

#include "base/number_types.h"
#include "gpu/number_types_kernels.h"

// One body for both compilers.
namespace motley::gpu_tests {

inline MOTLEY_HOST_DEVICE std::uint32_t bits_of(float value) {
  return __builtin_bit_cast(std::uint32_t, value);
}

inline MOTLEY_HOST_DEVICE std::uint32_t widen_one(Format format, std::uint32_t code) {
  const auto wide = static_cast<std::uint16_t>(code);
  const auto byte = static_cast<std::uint8_t>(code);
  switch (format) {
    case Format::f16:
      return bits_of(f16{wide}.to_float());
    case Format::bf16:
      return bits_of(bf16{wide}.to_float());
    case Format::f8_e4m3:
      return bits_of(f8_e4m3{byte}.to_float());
    case Format::f8_e5m2:
      return bits_of(f8_e5m2{byte}.to_float());
    case Format::f8_e8m0:
      return bits_of(f8_e8m0{byte}.to_float());
    case Format::f4_e2m1:
      return bits_of(f4_e2m1{byte}.to_float());
  }
  return 0;
}

inline MOTLEY_HOST_DEVICE std::uint32_t narrow_one(Format format, std::uint32_t bits) {
  const auto value = __builtin_bit_cast(float, bits);
  switch (format) {
    case Format::f16:
      return f16::from(value).bits;
    case Format::bf16:
      return bf16::from(value).bits;
    case Format::f8_e4m3:
      return f8_e4m3::from(value).bits;
    case Format::f8_e5m2:
      return f8_e5m2::from(value).bits;
    case Format::f8_e8m0:
      return f8_e8m0::from_rounded_up(value).bits;
    case Format::f4_e2m1:
      return f4_e2m1::from(value).bits;
  }
  return 0;
}

}  // namespace motley::gpu_tests
