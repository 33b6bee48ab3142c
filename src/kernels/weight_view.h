#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/dtype.h"
#include "base/number_types.h"

namespace motley::kernels {

// How the codes of a weight matrix [out, in] lie in memory. Row-major, one row of `in` inputs after
// the other; a row begins at a whole byte.
enum class WeightKind : std::uint8_t {
  f32,
  f16,
  bf16,
  f8_e4m3,
  i8,       // two's complement
  int4,     // two to a byte, the low half first, offset-binary: code 8 is zero
  f4_e2m1,  // two to a byte, the low half first
};

inline constexpr auto all_weight_kinds =
    std::to_array({WeightKind::f32, WeightKind::f16, WeightKind::bf16, WeightKind::f8_e4m3,
                   WeightKind::i8, WeightKind::int4, WeightKind::f4_e2m1});

constexpr std::string_view name(WeightKind kind) {
  switch (kind) {
    case WeightKind::f32:
      return "f32";
    case WeightKind::f16:
      return "f16";
    case WeightKind::bf16:
      return "bf16";
    case WeightKind::f8_e4m3:
      return "fp8";
    case WeightKind::int4:
      return "int4";
    case WeightKind::i8:
      return "int8";
    case WeightKind::f4_e2m1:
      return "fp4";
  }
  return "";
}

// How inputs are rounded before the product, where a file says that activations are quantised: x
// becomes (code - zero) * s, code being x / s + zero in the type, to nearest with ties to even,
// saturated. Without rounding products take x as it is.
struct InputRounding {
  enum class Scales : std::uint8_t {
    none,
    fixed,      // the file's
    row,        // the row's largest magnitude over the type's largest number
    row_block,  // the same for every `columns` inputs of a row
  };

  Scales scales = Scales::none;
  DType type = DType::i8;     // or f8_e4m3
  bool power_of_two = false;  // scales are rounded up to one; of row_block
  std::int64_t columns = 0;
  // Of row_block, where ranks cut rows: how far into a block the inputs begin. Input k is of the
  // block (first + k) / columns.
  std::int64_t first = 0;
  float scale = 0;  // of fixed
  float zero = 0;   // of fixed, i8: the code that means zero

  friend bool operator==(const InputRounding&, const InputRounding&) = default;
};

// What ranks that cut a row know of all of it: the largest magnitudes of the inputs that share a
// scale, [rows, stride], from the first scale on that this rank has inputs of.
struct InputMaxima {
  const float* data = nullptr;  // null: rows, or their blocks, are whole here
  std::int64_t stride = 0;
};

// A weight as kernels see it. Number (o, k) is
//   (code - zero) * scale,   scale = scales[o / block_rows][k / block_columns] * scale_factor
// with zero = zero_points at the same place, where there are some. It belongs to input
// input_order[k], or k without an order. Sizes are the true ones: what a format pads is not among
// them. Columns that mean zero may fill blocks up where there is an order; they stand for an input
// that other columns have.
struct WeightView {
  WeightKind kind = WeightKind::f32;
  DType scale_type = DType::f32;  // f32, f16, bf16, f8_e4m3 or f8_e8m0
  const void* data = nullptr;
  const void* scales = nullptr;  // [ceil(out / block_rows), groups()], at any byte; null: all 1
  float scale_factor = 1;
  const std::uint8_t* zero_points = nullptr;  // as scales: codes of int4, or of i8 plus 128
  const std::int32_t* input_order = nullptr;  // [in]
  std::int64_t out = 0;
  std::int64_t in = 0;  // columns
  std::int64_t block_rows = 1;
  std::int64_t block_columns = 0;  // 0 where there are no scales
  InputRounding inputs = {};

  // Scales of a row.
  constexpr MOTLEY_HOST_DEVICE std::int64_t groups() const {
    return (in + block_columns - 1) / block_columns;
  }
  // float32 scales, and nothing else beside the codes: what kernels read that know no more of a
  // format than its blocks.
  constexpr bool has_plain_scales() const {
    return scales != nullptr && scale_type == DType::f32 && scale_factor == 1 &&
           zero_points == nullptr;
  }
  MOTLEY_HOST_DEVICE const float* plain_scales() const { return static_cast<const float*>(scales); }
};

// Bits of a code.
constexpr int code_bits(WeightKind kind) {
  switch (kind) {
    case WeightKind::f32:
      return 32;
    case WeightKind::f16:
    case WeightKind::bf16:
      return 16;
    case WeightKind::f8_e4m3:
    case WeightKind::i8:
      return 8;
    case WeightKind::int4:
    case WeightKind::f4_e2m1:
      return 4;
  }
  return 0;
}

}  // namespace motley::kernels
