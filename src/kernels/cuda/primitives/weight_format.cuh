// Weight formats as traits for kernels. All are weight-only: elements are converted to the type of
// the rows.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/primitives/ptx.cuh"
#include "kernels/weight_view.h"

namespace motley::kernels::cuda {

// The source of the tensor core's operand.
enum class OperandSource : std::uint8_t {
  shared_memory,  // as stored
  registers,      // decoded in registers
};

// What a stored scale multiplies.
enum class ScaledPart : std::uint8_t {
  none,   // there are no scales
  sums,   // the float32 sum of a step's products: the step's inputs share a scale
  codes,  // a lane's codes, in bf16, which is exact
};

// A step of K is the share of the four lanes that read one row of weights: `lane_bytes` consecutive
// bytes of codes each.
template <class Format>
concept WeightOnlyFormat = requires {
  { Format::kind } -> std::convertible_to<WeightKind>;
  { Format::source } -> std::convertible_to<OperandSource>;
  { Format::scaled } -> std::convertible_to<ScaledPart>;
  requires Format::bits > 0 && Format::lane_bytes % 4 == 0;
  requires Format::step_k == 4 * Format::lane_bytes * 8 / Format::bits;
  // The inputs of a scale of `sums` are a multiple of this; those of `codes` are this many; 0: no
  // scales.
  requires(Format::scaled == ScaledPart::none) == (Format::group == 0);
};

struct Bf16Format {
  static constexpr WeightKind kind = WeightKind::bf16;
  static constexpr OperandSource source = OperandSource::shared_memory;
  static constexpr ScaledPart scaled = ScaledPart::none;
  static constexpr int bits = 16;
  static constexpr int lane_bytes = 16;
  static constexpr int step_k = 32;
  static constexpr int group = 0;
};

// Codes of a lane come in units of 8 inputs. Format::decode(unit, j) gives its numbers j and j + 4
// (0 <= j < 4) as two bf16, exactly, and the code that means zero as zero.
template <WeightKind kind_, int bits_, int units_>
struct CodeFormat {
  static constexpr WeightKind kind = kind_;
  static constexpr OperandSource source = OperandSource::registers;
  static constexpr ScaledPart scaled = ScaledPart::sums;
  static constexpr int bits = bits_;
  static constexpr int units = units_;
  static constexpr int unit_words = bits / 4;
  static constexpr int lane_bytes = 4 * unit_words * units;
  static constexpr int step_k = 32 * units;
  static constexpr int group = step_k;
};

__device__ inline __nv_bfloat162 as_bf16x2(std::uint32_t bits) {
  return *reinterpret_cast<const __nv_bfloat162*>(&bits);
}
__device__ inline std::uint32_t as_bits(__nv_bfloat162 pair) {
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}
// (a & mask) | rest
template <std::uint32_t mask, std::uint32_t rest>
__device__ inline std::uint32_t and_or(std::uint32_t a) {
  std::uint32_t result = 0;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(result) : "r"(a), "n"(mask), "n"(rest));
  return result;
}

template <int units>
struct Int4Format : CodeFormat<WeightKind::int4, 4, units> {
  // A code behind the bits of 128, whose last place is 1: 128 more than it says.
  __device__ static std::uint32_t above_128(const std::uint32_t* unit, int j) {
    return and_or<0x000F000FU, 0x43004300U>(unit[0] >> (4 * j));
  }
  __device__ static std::uint32_t decode(const std::uint32_t* unit, int j) {
    return as_bits(__hsub2(as_bf16x2(above_128(unit, j)), __floats2bfloat162_rn(136.0F, 136.0F)));
  }
};

template <int units>
struct Int8Format : CodeFormat<WeightKind::i8, 8, units> {
  // The lower 7 bits behind the bits of 128, less 128 or, with the sign's bit, 256.
  __device__ static std::uint32_t decode(const std::uint32_t* unit, int j) {
    const std::uint32_t pair = __byte_perm(unit[0], unit[1], 0x4400U + 0x1111U * j);
    return as_bits(__hsub2(as_bf16x2(and_or<0x007F007FU, 0x43004300U>(pair)),
                           as_bf16x2(and_or<0x00800080U, 0x43004300U>(pair))));
  }
};

// Exponent and mantissa in their places of bf16 count 2^-120 times as much, subnormal numbers too.
// The code for NaN counts as 480: no quantised weight has it.
__device__ inline std::uint32_t e4m3_pair(std::uint32_t high_bytes) {
  const std::uint32_t pair = (high_bytes & 0x80008000U) | ((high_bytes >> 4) & 0x07F007F0U);
  return as_bits(__hmul2(as_bf16x2(pair), as_bf16x2(0x7B807B80U)));  // 2^120
}

template <int units>
struct Fp8Format : CodeFormat<WeightKind::f8_e4m3, 8, units> {
  __device__ static std::uint32_t decode(const std::uint32_t* unit, int j) {
    return e4m3_pair(__byte_perm(unit[0], unit[1], 0x4400U + 0x1111U * j));
  }
};

// Of MXFP4 (groups of 32) and NVFP4 (of 16): a lane's scales multiply its own codes.
template <int group_inputs>
struct Fp4Format : CodeFormat<WeightKind::f4_e2m1, 4, 4> {
  static constexpr ScaledPart scaled = ScaledPart::codes;
  static constexpr int group = group_inputs;

  // As in e4m3_pair: 2^-126 times what the codes mean.
  __device__ static std::uint32_t in_place(const std::uint32_t* unit, int j) {
    const std::uint32_t high = unit[0] << (12 - 4 * j);
    return (high & 0x80008000U) | ((high >> 6) & 0x01C001C0U);
  }
  __device__ static std::uint32_t decode(const std::uint32_t* unit, int j) {
    return as_bits(__hmul2(as_bf16x2(in_place(unit, j)), as_bf16x2(0x7E807E80U)));  // 2^126
  }
  // The scale with this code, twice.
  __device__ static __nv_bfloat162 scale(std::uint32_t code) {
    if constexpr (group == 16) return as_bf16x2(e4m3_pair(code * 0x01000100U));
    // 2^-127 is a subnormal number, and 255 is NaN.
    const std::uint32_t bits = code == 0 ? 0x40U : code == 255 ? 0x7FC0U : code << 7;
    return as_bf16x2(bits * 0x10001U);
  }
};

static_assert(WeightOnlyFormat<Bf16Format>);
static_assert(WeightOnlyFormat<Int4Format<1>> && WeightOnlyFormat<Int4Format<4>>);
static_assert(WeightOnlyFormat<Int8Format<2>> && WeightOnlyFormat<Fp8Format<2>>);
static_assert(WeightOnlyFormat<Fp4Format<16>> && WeightOnlyFormat<Fp4Format<32>>);

}  // namespace motley::kernels::cuda
