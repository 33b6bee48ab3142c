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

// A step of K is the share of the four lanes that read one row of weights: `lane_bytes` consecutive
// bytes of codes each.
template <class Format>
concept WeightOnlyFormat = requires {
  typename Format::Element;  // the stored element: a number, or a byte of codes
  typename Format::Scale;    // void: none
  { Format::kind } -> std::convertible_to<WeightKind>;
  { Format::source } -> std::convertible_to<OperandSource>;
  requires Format::bits > 0 && Format::lane_bytes % 4 == 0;
  requires Format::step_k == 4 * Format::lane_bytes * 8 / Format::bits;
  // The inputs of a scale are a multiple of this; 0: no scales.
  requires std::is_void_v<typename Format::Scale> == (Format::group_multiple == 0);
  { Format::has_zero_points } -> std::convertible_to<bool>;
  { Format::has_column_index } -> std::convertible_to<bool>;
};

struct Bf16Format {
  using Element = Bf16;
  using Scale = void;
  static constexpr WeightKind kind = WeightKind::bf16;
  static constexpr OperandSource source = OperandSource::shared_memory;
  static constexpr int bits = 16;
  static constexpr int lane_bytes = 16;
  static constexpr int step_k = 32;
  static constexpr int group_multiple = 0;
  static constexpr bool has_zero_points = false;
  static constexpr bool has_column_index = false;
};

// Per step a lane has `words` words of 8 codes, which share one scale.
template <int words>
struct Int4Format {
  using Element = unsigned char;
  using Scale = float;
  static constexpr WeightKind kind = WeightKind::int4;
  static constexpr OperandSource source = OperandSource::registers;
  static constexpr int bits = 4;
  static constexpr int lane_bytes = 4 * words;
  static constexpr int step_k = 32 * words;
  static constexpr int group_multiple = step_k;
  static constexpr bool has_zero_points = false;
  static constexpr bool has_column_index = false;

  // Codes j and j + 4 of a word, minus 8, as two bf16. 0x4300 is 128, whose last place is 1.
  __device__ static std::uint32_t decode(std::uint32_t word, int j) {
    std::uint32_t pair = 0;
    asm("lop3.b32 %0, %1, %2, %3, 0xEA;"
        : "=r"(pair)
        : "r"(word >> (4 * j)), "r"(0x000F000FU), "r"(0x43004300U));
    const __nv_bfloat162 offset = __floats2bfloat162_rn(136.0F, 136.0F);
    const __nv_bfloat162 codes = __hsub2(*reinterpret_cast<__nv_bfloat162*>(&pair), offset);
    return *reinterpret_cast<const std::uint32_t*>(&codes);
  }
};

static_assert(WeightOnlyFormat<Bf16Format>);
static_assert(WeightOnlyFormat<Int4Format<1>> && WeightOnlyFormat<Int4Format<4>>);

}  // namespace motley::kernels::cuda
