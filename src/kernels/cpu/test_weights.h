#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "base/cat.h"
#include "base/number_types.h"
#include "kernels/cpu/test_numbers.h"
#include "kernels/weight_view.h"

// Weights of every format and rows of inputs, for the tests of products. Numbers are written from
// the formats' definitions, in float64, and not by the code under test.
namespace motley::kernels::cpu {

struct Format {
  WeightKind kind = WeightKind::f32;
  std::int64_t block_rows = 1;
  std::int64_t block_columns = 0;
  DType scale_type = DType::f32;
  float scale_factor = 1;
  bool zero_points = false;
  bool ordered = false;  // columns stand in an order of their own
  InputRounding inputs = {};
  bool odd_scales = false;  // at an odd byte though they are float32

  std::string text() const {
    return cat("kind ", int(kind), " block ", block_rows, "x", block_columns, " scales ",
               name(scale_type), " zeros ", zero_points, " ordered ", ordered, " inputs ",
               int(inputs.scales), " ", name(inputs.type), " ", inputs.columns);
  }
  friend std::ostream& operator<<(std::ostream& out, const Format& format) {
    return out << format.text();
  }
};

// A weight in memory that begins at an odd byte, with the same numbers in float64.
struct TestWeight {
  WeightView view;
  std::vector<std::byte> bytes;
  std::vector<float> scales;           // as float32, whatever their type, before the factor
  std::vector<std::byte> scale_bytes;  // in their own type, from the second byte on
  std::vector<std::uint8_t> zero_points;
  std::vector<std::int32_t> input_order;
  std::vector<double> numbers;  // [out, in], of the inputs in their own order

  double at(std::int64_t o, std::int64_t k) const {
    return numbers[static_cast<std::size_t>(o * view.in + k)];
  }
};

template <class Stored>
void put(std::vector<std::byte>& bytes, std::int64_t index, Stored value) {
  std::memcpy(bytes.data() + 1 + index * std::int64_t{sizeof value}, &value, sizeof value);
}

// Writes a scale in its type; returns what it means.
inline float put_scale(std::vector<std::byte>& bytes, DType type, std::int64_t index, float value) {
  switch (type) {
    case DType::f16:
      put(bytes, index, f16::from(value));
      return f16::from(value).to_float();
    case DType::bf16:
      put(bytes, index, bf16::from(value));
      return bf16::from(value).to_float();
    case DType::f8_e4m3:
      put(bytes, index, f8_e4m3::from(value));
      return f8_e4m3::from(value).to_float();
    case DType::f8_e8m0:
      put(bytes, index, f8_e8m0::from_rounded_up(value));
      return f8_e8m0::from_rounded_up(value).to_float();
    default:
      put(bytes, index, value);
      return value;
  }
}

// Writes number k of row o, near to `value` of [-1, 1]; returns what its code means.
inline float put_code(TestWeight& weight, std::int64_t o, std::int64_t k, float value) {
  const std::int64_t in = weight.view.in;
  const std::int64_t index = o * in + k;
  const auto put_half = [&](int code) {
    const std::int64_t byte = 1 + o * ((in + 1) / 2) + k / 2;
    const auto half = static_cast<std::byte>(k % 2 == 0 ? code : code << 4);
    std::byte& pair = weight.bytes[static_cast<std::size_t>(byte)];
    // An odd row's last high half holds a code that must not count.
    pair = k % 2 == 0 ? half | std::byte{0xF0} : (pair & std::byte{0x0F}) | half;
  };
  switch (weight.view.kind) {
    case WeightKind::f32:
      put(weight.bytes, index, value);
      return value;
    case WeightKind::f16:
      put(weight.bytes, index, f16::from(value));
      return f16::from(value).to_float();
    case WeightKind::bf16:
      put(weight.bytes, index, bf16::from(value));
      return bf16::from(value).to_float();
    case WeightKind::f8_e4m3:
      put(weight.bytes, index, f8_e4m3::from(value * 100));
      return f8_e4m3::from(value * 100).to_float();
    case WeightKind::i8: {
      const auto code = static_cast<std::int8_t>(std::lround(value * 127.5F - 0.5F));
      put(weight.bytes, index, code);
      return static_cast<float>(code);
    }
    case WeightKind::int4: {
      const int code = std::clamp(static_cast<int>(std::lround(value * 8 + 7.5F)), 0, 15);
      put_half(code);
      return static_cast<float>(code);
    }
    case WeightKind::f4_e2m1: {
      const int code = f4_e2m1::from(value * 7).bits & 15;
      put_half(code);
      constexpr float magnitudes[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
      return code < 8 ? magnitudes[code] : -magnitudes[code - 8];
    }
  }
  return 0;
}

// Scales and zero points.
inline void put_scales(Numbers& numbers, const Format& format, TestWeight& weight) {
  WeightView& view = weight.view;
  const std::int64_t groups = view.groups();
  const std::int64_t count = (view.out + format.block_rows - 1) / format.block_rows * groups;
  weight.scale_bytes.resize(static_cast<std::size_t>(1 + count * 4));
  for (std::int64_t i = 0; i < count; ++i) {
    weight.scales.push_back(
        put_scale(weight.scale_bytes, format.scale_type, i, numbers.between(0.01F, 0.1F)));
    if (format.zero_points) {
      const int codes = view.kind == WeightKind::i8 ? 256 : 16;
      weight.zero_points.push_back(static_cast<std::uint8_t>(numbers.below(codes)));
    }
  }
  view.scale_type = format.scale_type;
  view.scale_factor = format.scale_factor;
  const bool in_place = format.scale_type == DType::f32 && !format.odd_scales;
  view.scales =
      in_place ? static_cast<const void*>(weight.scales.data()) : weight.scale_bytes.data() + 1;
  if (format.zero_points) view.zero_points = weight.zero_points.data();
}

inline void put_order(Numbers& numbers, TestWeight& weight) {
  std::vector<std::int32_t>& order = weight.input_order;
  order.resize(static_cast<std::size_t>(weight.view.in));
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t k = order.size(); k > 1; --k)
    std::swap(order[k - 1], order[static_cast<std::size_t>(numbers.below(static_cast<int>(k)))]);
  weight.view.input_order = order.data();
}

inline TestWeight make_weight(Numbers& numbers, const Format& format, std::int64_t out,
                              std::int64_t in) {
  TestWeight weight;
  weight.view = {.kind = format.kind,
                 .out = out,
                 .in = in,
                 .block_rows = format.block_rows,
                 .block_columns = format.block_columns,
                 .inputs = format.inputs};
  weight.bytes.resize(1 + static_cast<std::size_t>(out * in) * 4);
  weight.view.data = weight.bytes.data() + 1;
  if (format.block_columns > 0) put_scales(numbers, format, weight);
  if (format.ordered) put_order(numbers, weight);
  weight.numbers.resize(static_cast<std::size_t>(out * in));
  for (std::int64_t o = 0; o < out; ++o) {
    for (std::int64_t k = 0; k < in; ++k) {
      const float code = put_code(weight, o, k, numbers.between(-1, 1));
      float scale = 1;
      float zero = format.kind == WeightKind::int4 ? 8 : 0;
      if (format.block_columns > 0) {
        const auto at = static_cast<std::size_t>(o / format.block_rows * weight.view.groups() +
                                                 k / format.block_columns);
        scale = weight.scales[at] * format.scale_factor;
        if (format.zero_points)
          zero = static_cast<float>(weight.zero_points[at]) -
                 (format.kind == WeightKind::i8 ? 128.0F : 0.0F);
      }
      const std::int64_t input =
          format.ordered ? weight.input_order[static_cast<std::size_t>(k)] : k;
      weight.numbers[static_cast<std::size_t>(o * in + input)] =
          static_cast<double>(code - zero) * static_cast<double>(scale);
    }
  }
  return weight;
}

inline TestWeight make_weight(Numbers& numbers, WeightKind kind, std::int64_t out, std::int64_t in,
                              std::int64_t block_rows = 1, std::int64_t block_columns = 0) {
  return make_weight(numbers,
                     Format{.kind = kind, .block_rows = block_rows, .block_columns = block_columns},
                     out, in);
}

// With float32 scales and nothing else beside the codes.
inline const std::vector<Format> plain_formats = {
    {WeightKind::f32},
    {WeightKind::f16},
    {WeightKind::bf16},
    {WeightKind::f8_e4m3, 128, 128},
    {WeightKind::f8_e4m3, 3, 32},
    {WeightKind::f8_e4m3, 2, 5},  // no whole vectors
    {WeightKind::int4, 1, 32},
    {WeightKind::int4, 1, 64},
    {WeightKind::int4, 1, 128},
    {WeightKind::int4, 1, 8},
    {WeightKind::int4, 1, 6},  // no whole words
    {WeightKind::int4, 1, 65536},
};

namespace roundings {
using Scales = InputRounding::Scales;
inline constexpr InputRounding i8_row{.scales = Scales::row, .type = DType::i8};
inline constexpr InputRounding i8_fixed{
    .scales = Scales::fixed, .type = DType::i8, .scale = 0.01F, .zero = -7};
inline constexpr InputRounding i8_block{
    .scales = Scales::row_block, .type = DType::i8, .columns = 128};
inline constexpr InputRounding i8_odd_block{
    .scales = Scales::row_block, .type = DType::i8, .columns = 24};
inline constexpr InputRounding f8_row{.scales = Scales::row, .type = DType::f8_e4m3};
inline constexpr InputRounding f8_fixed{
    .scales = Scales::fixed, .type = DType::f8_e4m3, .scale = 0.003F};
inline constexpr InputRounding f8_block{
    .scales = Scales::row_block, .type = DType::f8_e4m3, .columns = 128};
inline constexpr InputRounding mxfp8{
    .scales = Scales::row_block, .type = DType::f8_e4m3, .power_of_two = true, .columns = 32};
inline constexpr InputRounding f8_wide_block{
    .scales = Scales::row_block, .type = DType::f8_e4m3, .columns = 1500};
}  // namespace roundings

inline constexpr std::int64_t whole_row = 65536;

// Formats whose products are of integers.
inline const std::vector<Format> integer_formats = {
    {.kind = WeightKind::i8, .block_columns = whole_row, .inputs = roundings::i8_row},
    {.kind = WeightKind::i8,
     .block_columns = whole_row,
     .scale_type = DType::bf16,
     .zero_points = true,
     .inputs = roundings::i8_fixed},
    {.kind = WeightKind::i8,
     .block_rows = whole_row,
     .block_columns = whole_row,
     .inputs = roundings::i8_fixed},
    {.kind = WeightKind::i8,
     .block_rows = 128,
     .block_columns = 128,
     .inputs = roundings::i8_block},
    {.kind = WeightKind::i8,
     .block_columns = 64,
     .scale_type = DType::f16,
     .scale_factor = 0.3F,
     .zero_points = true,
     .inputs = roundings::i8_row},
    {.kind = WeightKind::i8, .block_columns = 4096, .inputs = roundings::i8_block},
    {.kind = WeightKind::i8,
     .block_columns = whole_row,
     .ordered = true,
     .inputs = roundings::i8_row},
};

// One way of scales each, beside plain_formats.
inline const std::vector<Format> quantised_formats = {
    // int4
    {.kind = WeightKind::int4, .block_columns = 128, .odd_scales = true},
    {.kind = WeightKind::int4, .block_columns = 16, .scale_type = DType::f16},
    {.kind = WeightKind::int4, .block_columns = 32, .scale_type = DType::bf16, .zero_points = true},
    {.kind = WeightKind::int4, .block_columns = 128, .scale_type = DType::f16, .zero_points = true},
    {.kind = WeightKind::int4, .block_columns = 256, .zero_points = true},
    {.kind = WeightKind::int4,
     .block_columns = whole_row,
     .scale_type = DType::bf16,
     .scale_factor = 1.7F,
     .zero_points = true},
    {.kind = WeightKind::int4, .block_columns = 48, .zero_points = true},  // by number
    {.kind = WeightKind::int4,
     .block_columns = 128,
     .scale_type = DType::f16,
     .zero_points = true,
     .ordered = true},
    {.kind = WeightKind::int4, .block_columns = 32, .ordered = true},
    {.kind = WeightKind::int4,
     .block_columns = 100,
     .scale_type = DType::bf16,
     .zero_points = true,
     .ordered = true},
    {.kind = WeightKind::int4,
     .block_rows = 3,
     .block_columns = 64,
     .scale_type = DType::f8_e4m3,
     .scale_factor = 0.25F,
     .inputs = roundings::i8_row},
    // f4_e2m1
    {.kind = WeightKind::f4_e2m1, .block_columns = 32, .scale_type = DType::f8_e8m0},
    {.kind = WeightKind::f4_e2m1,
     .block_columns = 16,
     .scale_type = DType::f8_e4m3,
     .scale_factor = 0.013F},
    {.kind = WeightKind::f4_e2m1, .block_columns = whole_row},
    {.kind = WeightKind::f4_e2m1, .block_columns = 12, .scale_type = DType::f8_e4m3},  // by number
    // i8
    {.kind = WeightKind::i8, .block_columns = whole_row},
    {.kind = WeightKind::i8,
     .block_rows = whole_row,
     .block_columns = whole_row,
     .scale_type = DType::bf16},
    {.kind = WeightKind::i8, .block_rows = 128, .block_columns = 128},
    {.kind = WeightKind::i8, .block_columns = 16, .scale_type = DType::f16, .zero_points = true},
    {.kind = WeightKind::i8,
     .block_columns = 128,
     .scale_type = DType::f16,
     .zero_points = true,
     .ordered = true},
    {.kind = WeightKind::i8, .block_columns = 32, .ordered = true},
    {.kind = WeightKind::i8, .block_columns = 32, .inputs = roundings::i8_row},  // not integers
    {.kind = WeightKind::i8, .block_columns = 128, .inputs = roundings::i8_odd_block},
    // f8_e4m3
    {.kind = WeightKind::f8_e4m3, .block_columns = whole_row, .inputs = roundings::f8_row},
    {.kind = WeightKind::f8_e4m3,
     .block_columns = whole_row,
     .scale_type = DType::bf16,
     .inputs = roundings::f8_fixed},
    {.kind = WeightKind::f8_e4m3,
     .block_rows = 128,
     .block_columns = 128,
     .scale_type = DType::bf16,
     .inputs = roundings::f8_block},
    {.kind = WeightKind::f8_e4m3,
     .block_rows = 128,
     .block_columns = 128,
     .scale_type = DType::f8_e8m0,
     .inputs = roundings::f8_wide_block},
    {.kind = WeightKind::f8_e4m3,
     .block_columns = 32,
     .scale_type = DType::f8_e8m0,
     .inputs = roundings::mxfp8},
    {.kind = WeightKind::f8_e4m3},  // without scales
    // Rounded inputs, and scales where there are none as a rule.
    {.kind = WeightKind::bf16, .inputs = roundings::f8_row},
    {.kind = WeightKind::f16, .block_columns = 32, .scale_type = DType::f16},
};

inline std::vector<Format> every_format() {
  std::vector<Format> all = plain_formats;
  all.insert(all.end(), quantised_formats.begin(), quantised_formats.end());
  all.insert(all.end(), integer_formats.begin(), integer_formats.end());
  return all;
}
inline const std::vector<Format> formats = every_format();

// Rows of x at an address and a stride of their own, as float64 beside.
struct TestInput {
  DType type;
  std::int64_t rows;
  std::int64_t in;
  std::int64_t stride;
  std::vector<float> wide;
  std::vector<bf16> narrow;

  const void* data() const {
    return type == DType::f32 ? static_cast<const void*>(wide.data()) : narrow.data();
  }
  double at(std::int64_t m, std::int64_t k) const {
    const auto index = static_cast<std::size_t>(m * stride + k);
    return static_cast<double>(type == DType::f32 ? wide[index] : narrow[index].to_float());
  }
};

inline TestInput make_input(Numbers& numbers, DType type, std::int64_t rows, std::int64_t in) {
  TestInput input{type, rows, in, in + 3, {}, {}};
  for (std::int64_t i = 0; i < rows * input.stride; ++i) {
    // What lies between rows must not count.
    const float value = i % input.stride < in ? numbers.between(-1, 1) : poison;
    input.wide.push_back(value);
    input.narrow.push_back(bf16::from(value));
  }
  return input;
}

// A scale of inputs whose largest magnitude is `largest`.
inline float expected_scale(const InputRounding& rounding, double largest) {
  if (rounding.scales == InputRounding::Scales::fixed) return rounding.scale;
  if (rounding.type == DType::i8) return static_cast<float>(largest / 127);
  if (rounding.scales == InputRounding::Scales::row)
    return std::max(static_cast<float>(largest / 448), 1 / (448.0F * 512));
  const auto scale = static_cast<float>(std::max(largest, static_cast<double>(1e-10F)) / 448);
  return rounding.power_of_two ? f8_e8m0::from_rounded_up(scale).to_float() : scale;
}

// The number of FP8 nearest to a ratio: the first of two that are as near is taken where its code
// is even.
inline double nearest_f8(double ratio) {
  const double magnitude = std::abs(ratio);
  double nearest = 0;
  for (int code = 1; code <= 0x7E; ++code) {
    const auto value = static_cast<double>(f8_e4m3{static_cast<std::uint8_t>(code)}.to_float());
    const double before = std::abs(nearest - magnitude);
    const double now = std::abs(value - magnitude);
    if (now > before) break;
    if (now < before || code % 2 == 0) nearest = value;
  }
  return std::copysign(nearest, ratio);
}

inline double rounded_input(const InputRounding& rounding, float scale, double x) {
  if (scale == 0) return 0;
  // The quotient is a float32.
  const auto ratio = static_cast<double>(static_cast<float>(x / static_cast<double>(scale)));
  if (rounding.type != DType::i8) return nearest_f8(ratio) * static_cast<double>(scale);
  const auto zero = static_cast<double>(rounding.zero);
  const double code = std::clamp(std::nearbyint(ratio) + zero, -128.0, 127.0);
  return (code - zero) * static_cast<double>(scale);
}

// Row m as a weight with such a rounding takes it.
inline std::vector<double> rounded_row(const TestInput& x, const InputRounding& rounding,
                                       std::int64_t m) {
  using Scales = InputRounding::Scales;
  std::vector<double> row;
  for (std::int64_t k = 0; k < x.in; ++k) row.push_back(x.at(m, k));
  if (rounding.scales == Scales::none) return row;
  const std::int64_t block = rounding.scales == Scales::row_block ? rounding.columns : x.in;
  for (std::int64_t begin = 0; begin < x.in; begin += block) {
    const std::int64_t end = std::min(begin + block, x.in);
    double largest = 0;
    for (std::int64_t k = begin; k < end; ++k)
      largest = std::max(largest, std::abs(row[static_cast<std::size_t>(k)]));
    const float scale = expected_scale(rounding, largest);
    for (std::int64_t k = begin; k < end; ++k) {
      double& value = row[static_cast<std::size_t>(k)];
      value = rounded_input(rounding, scale, value);
    }
  }
  return row;
}

}  // namespace motley::kernels::cpu
