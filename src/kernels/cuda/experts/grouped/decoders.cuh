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

// Numbers times a scale that is the sum of two bf16: the product with the first is added to that
// with the second in one rounding.
template <class Codes, class Stored_>
struct WideScaleDecoder {
  static constexpr float unit = 1;
  using Stored = Stored_;
  struct Scale {
    __nv_bfloat162 high, low;
    typename Stored::Zero zero;
  };

  __device__ static Stored load(std::uint32_t group, int row) { return Stored::load(group, row); }
  template <bool low>
  __device__ static Scale scale(const Stored& stored, HalfType type) {
    const float value = stored.template value<low>(type);
    const __nv_bfloat162 high = __float2bfloat162_rn(value);
    return {.high = high,
            .low = __float2bfloat162_rn(value - __low2float(high)),
            .zero = stored.template zero<low>()};
  }
  template <bool low>
  __device__ static void decode(const std::uint32_t* words, const Scale& scale,
                                std::uint32_t (&a)[4]) {
#pragma unroll
    for (int j = low ? 0 : 1; j < 4; j += 2) {
      const __nv_bfloat162 number = Stored::template number<Codes>(words, j, scale.zero);
      a[j] = as_bits(__hfma2(number, scale.high, __hmul2(number, scale.low)));
    }
  }
};

// f16 or bf16, the lower row's in the lower half, and zero points of int4.
struct HalvesAndZeros {
  using Zero = __nv_bfloat162;  // 128 more than it is
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
  template <bool low>
  __device__ Zero zero() const {
    return twice(0x4300U | (low ? zeros & 0xFFFF : zeros >> 16));
  }
  template <class Codes>
  __device__ static __nv_bfloat162 number(const std::uint32_t* words, int j, Zero zero) {
    return __hsub2(as_bf16x2(Codes::above_128(words, j)), zero);
  }
};

struct Floats {
  struct Zero {};
  float low, high;

  __device__ static Floats load(std::uint32_t group, int row) {
    return {load_shared_f32(group + row * 4), load_shared_f32(group + row * 4 + 32)};
  }
  template <bool of_low>
  __device__ float value(HalfType) const {
    return of_low ? low : high;
  }
  template <bool>
  __device__ Zero zero() const {
    return {};
  }
  template <class Codes>
  __device__ static __nv_bfloat162 number(const std::uint32_t* words, int j, Zero) {
    return as_bf16x2(Codes::decode(words, j));
  }
};

// float32, and zero points of int8.
struct FloatsAndZeros {
  using Zero = __nv_bfloat162;
  Floats scales;
  std::uint32_t zeros;  // 128 more than they are, the lower row's in the lower half

  __device__ static FloatsAndZeros load(std::uint32_t group, int row) {
    return {Floats::load(group, row),
            load_shared_u8(group + 256 + row) | load_shared_u8(group + 264 + row) << 16};
  }
  template <bool low>
  __device__ float value(HalfType type) const {
    return scales.value<low>(type);
  }
  template <bool low>
  __device__ Zero zero() const {
    const auto stored = static_cast<int>(low ? zeros & 0xFFFF : zeros >> 16);
    return __float2bfloat162_rn(static_cast<float>(stored - 128));
  }
  // Of at most 8 bits, so exact.
  template <class Codes>
  __device__ static __nv_bfloat162 number(const std::uint32_t* words, int j, Zero zero) {
    return __hsub2(as_bf16x2(Codes::decode(words, j)), zero);
  }
};

// Bytes.
struct ByteScales {
  std::uint32_t low, high;

  __device__ static ByteScales load(std::uint32_t group, int row) {
    return {load_shared_u8(group + row), load_shared_u8(group + row + 8)};
  }
};

// Numbers times a power of two.
struct Mxfp8Decoder {
  static constexpr float unit = 1;
  using Stored = ByteScales;
  using Scale = __nv_bfloat162;

  __device__ static Stored load(std::uint32_t group, int row) { return Stored::load(group, row); }
  template <bool low>
  __device__ static Scale scale(const Stored& stored, HalfType) {
    return Fp4Format<32>::scale(low ? stored.low : stored.high);
  }
  template <bool low>
  __device__ static void decode(const std::uint32_t* words, Scale scale, std::uint32_t (&a)[4]) {
#pragma unroll
    for (int j = low ? 0 : 1; j < 4; j += 2)
      a[j] = as_bits(__hmul2(as_bf16x2(Fp8Format<2>::decode(words, j)), scale));
  }
};

// Codes in place times their scale, which has a byte, times 2^126 (what the place takes away) and
// the unit. Exact: a number has few bits. Scales of MXFP4 from 2^-68 to 2^65 stay in bf16's range;
// what is smaller loses bits on its way to zero.
template <int group>
struct Fp4Decoder {
  static constexpr float unit = fp4_unit;
  using Codes = Fp4Format<group>;
  using Stored = ByteScales;
  using Scale = __nv_bfloat162;

  __device__ static Stored load(std::uint32_t group_at, int row) {
    return Stored::load(group_at, row);
  }
  template <bool low>
  __device__ static Scale scale(const Stored& stored, HalfType) {
    const std::uint32_t code = low ? stored.low : stored.high;
    if constexpr (group == 32) return twice((code + 62) << 7);
    return __hmul2(Codes::scale(code), twice((127 + 62) << 7));
  }
  template <bool low>
  __device__ static void decode(const std::uint32_t* words, Scale scale, std::uint32_t (&a)[4]) {
#pragma unroll
    for (int j = low ? 0 : 1; j < 4; j += 2)
      a[j] = as_bits(__hmul2(as_bf16x2(Codes::in_place(words, j)), scale));
  }
};

using AnyInt4Decoder = WideScaleDecoder<Int4Format<4>, HalvesAndZeros>;
using Int8Decoder = WideScaleDecoder<Int8Format<2>, Floats>;
using AnyInt8Decoder = WideScaleDecoder<Int8Format<2>, FloatsAndZeros>;
using Fp8Decoder = WideScaleDecoder<Fp8Format<2>, Floats>;
using Mxfp4Decoder = Fp4Decoder<32>;
using Nvfp4Decoder = Fp4Decoder<16>;

}  // namespace motley::kernels::cuda::grouped
