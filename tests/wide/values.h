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
  DType dtype = DType::bf16;
  tensor::Shape shape;
  // What it holds, one of four.
  int codes = 0;           // i32, u8: packed codes of 4 or 8 bits
  std::int64_t group = 0;  // i32: the group of each column, groups of so many in their own order
  std::vector<std::int64_t> numbers;  // i32, i64: these, over and over
  // Else (sum + offset) * scale in float32, rounded once; f32 holds what bf16 does.
  std::int64_t offset = 0;
  float scale = 0;
  bool part = false;  // of a quantised weight
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
