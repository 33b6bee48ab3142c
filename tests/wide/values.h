#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/json/json.h"
#include "tensor/shape.h"

// Numbers that follow from a key and an index alone, the same as tools/wide/values.py makes, bit
// for bit.
namespace motley::wide_tests {

// FNV-1a of 64 bits.
std::uint64_t key_of(std::string_view text);

// Word i is output i of splitmix64 that starts at the tensor's key. The sum of its four 16-bit
// fields, less its mean, is close to normal.
std::uint64_t word(std::uint64_t key, std::int64_t index);

// Tensors of one shape and kind. Each `{}` of the name runs through its range, the last one
// fastest.
struct Recipe {
  std::string name;
  std::vector<std::array<std::int64_t, 2>> ranges;  // [first, last)
  // bf16, and f32 that bf16 holds too: (sum + offset) * scale in float32, rounded to bf16. f8_e4m3:
  // the same product, rounded once. i32: eight 4-bit codes of each word. i64: `numbers`.
  DType dtype = DType::bf16;
  tensor::Shape shape;
  std::int64_t offset = 0;
  float scale = 0;
  std::vector<std::int64_t> numbers;
  // Of the first and the last tensor, by Python; empty where there are numbers.
  std::vector<std::uint64_t> checksums;

  std::vector<std::string> names() const;
  std::int64_t elements() const { return shape.elements(); }
  std::int64_t bytes() const;
};

Recipe read_recipe(const json::Value& record);

// Writes elements [first, first + count) of the tensor with that key at `to`.
void fill(const Recipe& recipe, std::uint64_t key, std::int64_t first, std::int64_t count,
          std::byte* to);

// Of a tensor's elements as unsigned integers of their width: every one counts, with its place.
std::uint64_t checksum(std::span<const std::byte> tensor, DType dtype);

}  // namespace motley::wide_tests
