// Numbers beside a weight's codes, loaded as the words that hold them and widened later.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "base/number_types.h"

namespace motley::kernels::cuda {

// Bytes of a stored scale.
constexpr MOTLEY_HOST_DEVICE int scale_bytes(DType type) {
  switch (type) {
    case DType::f16:
    case DType::bf16:
      return 2;
    case DType::f8_e4m3:
    case DType::f8_e8m0:
      return 1;
    default:
      return 4;
  }
}

// A number of a weight's scales or zero points: the aligned word that holds it, and where.
struct PlacedNumber {
  const unsigned char* word;
  unsigned shift;  // bits

  __device__ explicit PlacedNumber(const unsigned char* number) {
    const auto address = reinterpret_cast<std::uintptr_t>(number);
    word = reinterpret_cast<const unsigned char*>(address & ~std::uintptr_t{3});
    shift = static_cast<unsigned>(address & 3) * 8;
  }
};

__device__ inline float widen_scale(std::uint32_t word, unsigned shift, DType type) {
  const std::uint32_t bits = word >> shift;
  switch (type) {
    case DType::f16:
      return f16{static_cast<std::uint16_t>(bits)}.to_float();
    case DType::bf16:
      return bf16{static_cast<std::uint16_t>(bits)}.to_float();
    case DType::f8_e4m3:
      return f8_e4m3{static_cast<std::uint8_t>(bits)}.to_float();
    case DType::f8_e8m0:
      return f8_e8m0{static_cast<std::uint8_t>(bits)}.to_float();
    default:
      return __uint_as_float(word);
  }
}

}  // namespace motley::kernels::cuda
