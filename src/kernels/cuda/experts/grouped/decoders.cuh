// How a thread turns packed codes into A operands of bf16 products: one decoder for each way of
// scales. A decoder has
//   Stored  the scales of the thread's two rows in a blob, as they stand there for its pair, and
//   Scale   what decodes one of the rows in a group, from scale<low>(stored, group, half).
// decode<low>() converts the row's share of a k16 step. All decoders round a weight once, to bf16.
#pragma once

#include <cstdint>

#include <cuda_fp16.h>

#include "kernels/cuda/experts/packed_layout.h"
#include "kernels/cuda/primitives/ptx.cuh"
#include "kernels/cuda/primitives/weight_format.cuh"

namespace motley::kernels::cuda::grouped {

__device__ inline __nv_bfloat162 twice(std::uint32_t bits) { return as_bf16x2(bits * 0x10001U); }
// The lower or the upper half of a word, twice.
template <bool low>
__device__ inline __nv_bfloat162 half_twice(std::uint32_t word) {
  return as_bf16x2(__byte_perm(word, 0, low ? 0x1010 : 0x3232));
}

// Of each group the lower row's half, then the upper one's.
template <int groups>
struct HalfScales {
  std::uint32_t words[groups];

  __device__ static HalfScales load(std::uint32_t scales, int pair) {
    HalfScales stored;
    load_shared_words(stored.words, scales + pair * sizeof stored.words);
    return stored;
  }
};
// The same of bytes.
template <int groups>
struct ByteScales {
  std::uint32_t words[(groups + 1) / 2];

  __device__ static ByteScales load(std::uint32_t scales, int pair) {
    ByteScales stored;
    if constexpr (groups == 1)
      stored.words[0] = load_shared_u16(scales + pair * 2);
    else
      load_shared_words(stored.words, scales + pair * sizeof stored.words);
    return stored;
  }
  template <bool low>
  static constexpr MOTLEY_HOST_DEVICE std::uint32_t place(int group) {
    return static_cast<std::uint32_t>(group) % 2 * 2 + (low ? 0 : 1);
  }
  template <bool low>
  __device__ std::uint32_t at(int group) const {
    return words[group / 2] >> (8 * place<low>(group)) & 0xFF;
  }
  // A row's in the lower byte of each half, under the same upper one.
  template <bool low>
  __device__ std::uint32_t twice(int group, std::uint32_t upper) const {
    return __byte_perm(words[group / 2], upper, 0x4040 + 0x0101 * place<low>(group));
  }
  // Both rows' in the upper byte of a half each.
  __device__ std::uint32_t both_high(int group) const {
    return __byte_perm(words[group / 2], 0, group % 2 == 0 ? 0x1404 : 0x3424);
  }
};

// bf16(factor * code + offset), which has the bits of bf16((code - 8) * scale) * int4_unit. A code
// is read as bf16 in place: in bits 0 to 3 of a half it is 2^-133 times itself, in bits 4 to 7
// 2^-129 times, because the bf16 numbers of the two smallest exponents count up like integers. The
// unit keeps factors in the range of bf16, for scales below 2^58.
template <int groups>
struct Int4Decoder {
  static constexpr float unit = int4_unit;
  using Stored = HalfScales<groups>;
  struct Scale {
    __nv_bfloat162 factor, offset;
  };

  template <bool low>
  __device__ static Scale scale(const Stored& stored, int group, HalfType) {
    const __nv_bfloat162 scale = half_twice<low>(stored.words[group]);
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

  template <bool low>
  __device__ static Scale scale(const Stored& stored, int group, HalfType type) {
    const float value = stored.template value<low>(group, type);
    const __nv_bfloat162 high = __float2bfloat162_rn(value);
    return {.high = high,
            .low = __float2bfloat162_rn(value - __low2float(high)),
            .zero = stored.template zero<low>(group)};
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

// f16 or bf16, and zero points of int4.
template <int groups>
struct HalvesAndZeros {
  using Zero = __nv_bfloat162;  // 128 more than it is
  HalfScales<groups> scales;
  ByteScales<groups> zeros;

  __device__ static HalvesAndZeros load(std::uint32_t at, int pair) {
    return {HalfScales<groups>::load(at, pair),
            ByteScales<groups>::load(at + 64 * groups * 2, pair)};
  }
  template <bool low>
  __device__ float value(int group, HalfType type) const {
    const std::uint32_t bits = low ? scales.words[group] & 0xFFFF : scales.words[group] >> 16;
    return type == HalfType::f16 ? __half2float(__ushort_as_half(static_cast<std::uint16_t>(bits)))
                                 : __uint_as_float(bits << 16);
  }
  template <bool low>
  __device__ Zero zero(int group) const {
    return as_bf16x2(zeros.template twice<low>(group, 0x43));
  }
  template <class Codes>
  __device__ static __nv_bfloat162 number(const std::uint32_t* words, int j, Zero zero) {
    return __hsub2(as_bf16x2(Codes::above_128(words, j)), zero);
  }
};

template <int groups>
struct Floats {
  struct Zero {};
  std::uint32_t words[2 * groups];

  __device__ static Floats load(std::uint32_t scales, int pair) {
    Floats stored;
    load_shared_words(stored.words, scales + pair * sizeof stored.words);
    return stored;
  }
  template <bool low>
  __device__ float value(int group, HalfType) const {
    return __uint_as_float(words[2 * group + (low ? 0 : 1)]);
  }
  template <bool>
  __device__ Zero zero(int) const {
    return {};
  }
  template <class Codes>
  __device__ static __nv_bfloat162 number(const std::uint32_t* words, int j, Zero) {
    return as_bf16x2(Codes::decode(words, j));
  }
};

// float32, and zero points of int8.
template <int groups>
struct FloatsAndZeros {
  using Zero = __nv_bfloat162;
  Floats<groups> scales;
  ByteScales<groups> zeros;  // 128 more than they are

  __device__ static FloatsAndZeros load(std::uint32_t at, int pair) {
    return {Floats<groups>::load(at, pair), ByteScales<groups>::load(at + 64 * groups * 4, pair)};
  }
  template <bool low>
  __device__ float value(int group, HalfType type) const {
    return scales.template value<low>(group, type);
  }
  template <bool low>
  __device__ Zero zero(int group) const {
    const auto stored = static_cast<int>(zeros.template at<low>(group));
    return __float2bfloat162_rn(static_cast<float>(stored - 128));
  }
  // Of at most 8 bits, so exact.
  template <class Codes>
  __device__ static __nv_bfloat162 number(const std::uint32_t* words, int j, Zero zero) {
    return __hsub2(as_bf16x2(Codes::decode(words, j)), zero);
  }
};

// Numbers of int4 times a scale that is bf16.
template <int groups>
struct ZeroedInt4Decoder {
  static constexpr float unit = 1;
  using Stored = HalvesAndZeros<groups>;
  struct Scale {
    __nv_bfloat162 factor;
    typename Stored::Zero zero;
  };

  template <bool low>
  __device__ static Scale scale(const Stored& stored, int group, HalfType) {
    return {.factor = half_twice<low>(stored.scales.words[group]),
            .zero = stored.template zero<low>(group)};
  }
  template <bool low>
  __device__ static void decode(const std::uint32_t* words, const Scale& scale,
                                std::uint32_t (&a)[4]) {
#pragma unroll
    for (int j = low ? 0 : 1; j < 4; j += 2)
      a[j] = as_bits(
          __hmul2(Stored::template number<Int4Format<4>>(words, j, scale.zero), scale.factor));
  }
};

// Numbers times a power of two.
struct Mxfp8Decoder {
  static constexpr float unit = 1;
  using Stored = ByteScales<4>;
  using Scale = __nv_bfloat162;

  template <bool low>
  __device__ static Scale scale(const Stored& stored, int group, HalfType) {
    return Fp4Format<32>::scale(stored.at<low>(group));
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
template <int inputs>
struct Fp4Decoder {
  static constexpr float unit = fp4_unit;
  using Codes = Fp4Format<inputs>;
  using Stored = ByteScales<128 / inputs>;
  using Scale = __nv_bfloat162;

  // MXFP4's are stored with 2^126 and the unit in them. Of NVFP4 both rows' are made at once.
  template <bool low>
  __device__ static Scale scale(const Stored& stored, int group, HalfType) {
    if constexpr (inputs == 32) return as_bf16x2(stored.template twice<low>(group, 0) << 7);
    const __nv_bfloat162 both = as_bf16x2(e4m3_pair(stored.both_high(group)));
    return half_twice<low>(as_bits(__hmul2(both, twice((127 + 62) << 7))));
  }
  template <bool low>
  __device__ static void decode(const std::uint32_t* words, Scale scale, std::uint32_t (&a)[4]) {
#pragma unroll
    for (int j = low ? 0 : 1; j < 4; j += 2)
      a[j] = as_bits(__hmul2(as_bf16x2(Codes::in_place(words, j)), scale));
  }
};

template <int groups>
using AnyInt4Decoder = WideScaleDecoder<Int4Format<4>, HalvesAndZeros<groups>>;
using Int8Decoder = WideScaleDecoder<Int8Format<2>, Floats<1>>;
template <int groups>
using AnyInt8Decoder = WideScaleDecoder<Int8Format<2>, FloatsAndZeros<groups>>;
template <int groups>
using Fp8Decoder = WideScaleDecoder<Fp8Format<2>, Floats<groups>>;
using Mxfp4Decoder = Fp4Decoder<32>;
using Nvfp4Decoder = Fp4Decoder<16>;

}  // namespace motley::kernels::cuda::grouped
