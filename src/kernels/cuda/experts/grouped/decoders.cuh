// How a thread turns packed codes into A operands of bf16 products: one decoder for each way of
// scales. A decoder has
//   Stored  a group's scales of the thread's two rows as load() reads them from a blob's group, and
//   Scale   what decodes one of the rows, from scale<low>(stored, half).
// decode<low>() converts the row's share of a k16 step. All decoders round a weight once, to bf16.
#pragma once

#include <cstdint>

#include <cuda_fp16.h>

#include "kernels/cuda/experts/packed_layout.h"
#include "kernels/cuda/primitives/ptx.cuh"
#include "kernels/cuda/primitives/weight_format.cuh"

namespace motley::kernels::cuda::grouped {

__device__ inline __nv_bfloat162 twice(std::uint32_t bits) { return as_bf16x2(bits * 0x10001U); }

// bf16(factor * code + offset), which has the bits of bf16((code - 8) * scale) * int4_unit. A code
// is read as bf16 in place: in bits 0 to 3 of a half it is 2^-133 times itself, in bits 4 to 7
// 2^-129 times, because the bf16 numbers of the two smallest exponents count up like integers. The
// unit keeps factors in the range of bf16, for scales below 2^58.
struct Int4Decoder {
  static constexpr float unit = int4_unit;
  // The lower row's scale is in the lower half.
  using Stored = std::uint32_t;
  struct Scale {
    __nv_bfloat162 factor, offset;
  };

  __device__ static Stored load(std::uint32_t group, int row) {
    return load_shared_u16(group + row * 2) | load_shared_u16(group + row * 2 + 16) << 16;
  }
  template <bool low>
  __device__ static Scale scale(Stored stored, HalfType) {
    const __nv_bfloat162 scale = as_bf16x2(__byte_perm(stored, 0, low ? 0x1010 : 0x3232));
    return {.factor = __hmul2(scale, twice(low ? 0x6200 : 0x6000)),  // 2^69, 2^65
            .offset = __hmul2(scale, twice(0xA100))};                // -2^-61
  }
  template <bool low>
  __device__ static void decode(const std::uint32_t* words, const Scale& scale,
                                std::uint32_t (&a)[4]) {
    constexpr std::uint32_t mask = low ? 0x000F000F : 0x00F000F0;
    const auto two = [&](std::uint32_t codes) {
      return as_bits(__hfma2(as_bf16x2(codes), scale.factor, scale.offset));
    };
    a[low ? 0 : 1] = two(words[0] & mask);
    a[low ? 2 : 3] = two(words[0] >> 8 & mask);
  }
};

// Numbers times their scale, which is the sum of two bf16 (or one, if it has no more bits): the
// product with the first is added to that with the second in one rounding.
template <class Codes, class Stored_, bool two_parts, bool zero_points>
struct ScaledDecoder {
  static constexpr float unit = 1;
  using Stored = Stored_;
  struct Scale {
    __nv_bfloat162 high, low, zero;
  };

  __device__ static Stored load(std::uint32_t group, int row) { return Stored::load(group, row); }
  template <bool low>
  __device__ static Scale scale(const Stored& stored, HalfType type) {
    Scale made;
    if constexpr (two_parts) {
      const float value = stored.template value<low>(type);
      made.high = __float2bfloat162_rn(value);
      made.low = __float2bfloat162_rn(value - __low2float(made.high));
    } else {
      made.high = stored.template narrow<low>();
    }
    if constexpr (zero_points) made.zero = stored.template zero<low>();
    return made;
  }
  template <bool low>
  __device__ static void decode(const std::uint32_t* words, const Scale& scale,
                                std::uint32_t (&a)[4]) {
#pragma unroll
    for (int j = low ? 0 : 1; j < 4; j += 2) {
      __nv_bfloat162 number = as_bf16x2(Codes::decode(words, j));
      if constexpr (zero_points) number = __hsub2(number, scale.zero);
      if constexpr (two_parts)
        a[j] = as_bits(__hfma2(number, scale.high, __hmul2(number, scale.low)));
      else
        a[j] = as_bits(__hmul2(number, scale.high));
    }
  }
};

// f16 or bf16, the lower row's in the lower half, and zero points of int4.
struct HalvesAndZeros {
  std::uint32_t scales;
  std::uint32_t zeros;

  __device__ static HalvesAndZeros load(std::uint32_t group, int row) {
    return {Int4Decoder::load(group, row),
            load_shared_u8(group + 128 + row) | load_shared_u8(group + 136 + row) << 16};
  }
  template <bool low>
  __device__ float value(HalfType type) const {
    const std::uint32_t bits = low ? scales & 0xFFFF : scales >> 16;
    return type == HalfType::f16 ? __half2float(__ushort_as_half(static_cast<std::uint16_t>(bits)))
                                 : __uint_as_float(bits << 16);
  }
  // Relative to 8.
  template <bool low>
  __device__ __nv_bfloat162 zero() const {
    const std::uint32_t code = low ? zeros & 0xFFFF : zeros >> 16;
    return __hsub2(twice(0x4300U | code), __floats2bfloat162_rn(136.0F, 136.0F));
  }
};

struct Floats {
  float low, high;

  __device__ static Floats load(std::uint32_t group, int row) {
    return {load_shared_f32(group + row * 4), load_shared_f32(group + row * 4 + 32)};
  }
  template <bool of_low>
  __device__ float value(HalfType) const {
    return of_low ? low : high;
  }
};

// Codes of one byte, which Codes::scale() widens.
template <class Codes>
struct ScaleBytes {
  std::uint32_t low, high;

  __device__ static ScaleBytes load(std::uint32_t group, int row) {
    return {load_shared_u8(group + row), load_shared_u8(group + row + 8)};
  }
  template <bool of_low>
  __device__ __nv_bfloat162 narrow() const {
    return Codes::scale(of_low ? low : high);
  }
};

using AnyInt4Decoder = ScaledDecoder<Int4Format<4>, HalvesAndZeros, true, true>;
using Int8Decoder = ScaledDecoder<Int8Format<2>, Floats, true, false>;
using Fp8Decoder = ScaledDecoder<Fp8Format<2>, Floats, true, false>;
using Mxfp4Decoder = ScaledDecoder<Fp4Format<32>, ScaleBytes<Fp4Format<32>>, false, false>;
using Nvfp4Decoder = ScaledDecoder<Fp4Format<16>, ScaleBytes<Fp4Format<16>>, false, false>;

}  // namespace motley::kernels::cuda::grouped
