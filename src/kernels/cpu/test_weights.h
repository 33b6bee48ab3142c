#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/number_types.h"
#include "kernels/cpu/test_numbers.h"
#include "kernels/weight_view.h"

// Weights of every format and rows of inputs, for the tests of products.
namespace motley::kernels::cpu {

// A weight in memory that begins at an odd byte, with the same numbers in float64, both written
// from the format's definition and not by the code under test.
struct TestWeight {
  WeightView view;
  std::vector<std::byte> bytes;
  std::vector<float> scales;
  std::vector<double> numbers;  // [out, in]

  double at(std::int64_t o, std::int64_t k) const {
    return numbers[static_cast<std::size_t>(o * view.in + k)];
  }
};

template <class Stored>
void put(std::vector<std::byte>& bytes, std::int64_t index, Stored value) {
  std::memcpy(bytes.data() + 1 + index * std::int64_t{sizeof value}, &value, sizeof value);
}

inline TestWeight make_weight(Numbers& numbers, WeightKind kind, std::int64_t out, std::int64_t in,
                              std::int64_t block_rows = 1, std::int64_t block_columns = 0) {
  TestWeight weight;
  weight.view = {
      .kind = kind, .out = out, .in = in, .block_rows = block_rows, .block_columns = block_columns};
  const auto count = static_cast<std::size_t>(out * in);
  weight.numbers.resize(count);
  weight.bytes.resize(1 + count * 4);
  std::int64_t scale_columns = 0;
  if (block_columns > 0) {
    scale_columns = (in + block_columns - 1) / block_columns;
    const std::int64_t scale_rows = (out + block_rows - 1) / block_rows;
    for (std::int64_t i = 0; i < scale_rows * scale_columns; ++i)
      weight.scales.push_back(numbers.between(0.01F, 0.1F));
  }
  for (std::int64_t o = 0; o < out; ++o) {
    for (std::int64_t k = 0; k < in; ++k) {
      const std::int64_t index = o * in + k;
      const float value = numbers.between(-1, 1);
      float stored = value;
      double scale = 1;
      if (block_columns > 0) {
        scale = static_cast<double>(weight.scales[static_cast<std::size_t>(
            o / block_rows * scale_columns + k / block_columns)]);
      }
      switch (kind) {
        case WeightKind::f32:
          put(weight.bytes, index, value);
          break;
        case WeightKind::f16:
          put(weight.bytes, index, f16::from(value));
          stored = f16::from(value).to_float();
          break;
        case WeightKind::bf16:
          put(weight.bytes, index, bf16::from(value));
          stored = bf16::from(value).to_float();
          break;
        case WeightKind::f8_block:
          put(weight.bytes, index, f8_e4m3::from(value * 100));
          stored = f8_e4m3::from(value * 100).to_float();
          break;
        case WeightKind::int4_group: {
          const int code = numbers.below(16);
          const std::int64_t byte = 1 + o * ((in + 1) / 2) + k / 2;
          const auto half = static_cast<std::byte>(k % 2 == 0 ? code : code << 4);
          std::byte& pair = weight.bytes[static_cast<std::size_t>(byte)];
          // An odd row's last high half holds a code that must not count.
          pair = k % 2 == 0 ? half | std::byte{0xF0} : (pair & std::byte{0x0F}) | half;
          stored = static_cast<float>(code - 8);
          break;
        }
      }
      weight.numbers[static_cast<std::size_t>(index)] = static_cast<double>(stored) * scale;
    }
  }
  weight.view.data = weight.bytes.data() + 1;
  weight.view.scales = weight.scales.data();
  return weight;
}

struct Format {
  WeightKind kind;
  std::int64_t block_rows = 1;
  std::int64_t block_columns = 0;
};

inline const std::vector<Format> formats = {
    {WeightKind::f32},
    {WeightKind::f16},
    {WeightKind::bf16},
    {WeightKind::f8_block, 128, 128},
    {WeightKind::f8_block, 3, 32},
    {WeightKind::f8_block, 2, 5},  // no whole vectors
    {WeightKind::int4_group, 1, 32},
    {WeightKind::int4_group, 1, 64},
    {WeightKind::int4_group, 1, 128},
    {WeightKind::int4_group, 1, 8},
    {WeightKind::int4_group, 1, 6},  // no whole words
    {WeightKind::int4_group, 1, 65536},
};

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

}  // namespace motley::kernels::cpu
