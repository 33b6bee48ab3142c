#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/instruction_set.h"
#include "kernels/cpu/test_numbers.h"

namespace motley::kernels::cpu {
namespace {

class Expand : public testing::TestWithParam<InstructionSet> {};
INSTANTIATE_TEST_SUITE_P(EverySet, Expand, testing::ValuesIn(available_instruction_sets()),
                         [](const auto& test) { return std::string(name(test.param)); });

// B without gaps between its rows, in the type that pages have.
struct Factor {
  Factor(Numbers& numbers, DType b_type, std::int64_t rows, std::int64_t ranks)
      : type(b_type), out(rows), padded(ranks), wide(numbers.floats(rows * ranks, -1, 1)) {
    for (std::int64_t o = 0; o < out; ++o)
      scales.push_back(std::ldexp(1.0F, static_cast<int>(o % 7) - 3));
    for (std::size_t i = 0; i < wide.size(); ++i) {
      const float scale = scales[i / static_cast<std::size_t>(padded)];
      narrow.push_back(bf16::from(wide[i]));
      codes.push_back(f8_e4m3::from(wide[i]));
      if (type == DType::bf16) wide[i] = narrow.back().to_float();
      if (type == DType::f8_e4m3) wide[i] = codes.back().to_float() * scale;
    }
  }
  double at(std::int64_t o, std::int64_t r) const {
    return static_cast<double>(wide[static_cast<std::size_t>(o * padded + r)]);
  }
  const void* data() const {
    if (type == DType::f8_e4m3) return codes.data();
    return type == DType::f32 ? static_cast<const void*>(wide.data()) : narrow.data();
  }

  DType type;
  std::int64_t out;
  std::int64_t padded;
  std::vector<float> wide;
  std::vector<bf16> narrow;
  std::vector<f8_e4m3> codes;
  std::vector<float> scales;
};

ExpandTile tile_of(const TestRows& t, const Factor& b, TestRows& y) {
  return {.t = static_cast<const float*>(t.row(0)),
          .t_stride = t.stride(),
          .rows = t.rows(),
          .b = b.data(),
          .b_type = b.type,
          .b_scales = b.scales.data(),
          .padded = b.padded,
          .out_end = b.out,
          .y = y.floats(),
          .y_stride = y.stride()};
}

constexpr std::array types = {DType::f32, DType::bf16, DType::f8_e4m3};

TEST_P(Expand, AddsWhatAFloat64LoopGives) {
  Numbers numbers(1);
  for (const DType type : types) {
    for (const std::int64_t padded : {0, 8, 16, 24, 64, 72, 200}) {
      for (const std::int64_t out : {1, 3, 16, 37, 64, 130}) {
        for (const std::int64_t rows : {1, 2, 3, 5, 6, 7, 20}) {
          const TestRows t(numbers, DType::f32, rows, padded);
          const Factor b(numbers, type, out, padded);
          TestRows y(numbers, DType::f32, rows, out);
          const TestRows before = y;
          expand_tile(GetParam(), tile_of(t, b, y));
          for (std::int64_t m = 0; m < rows; ++m) {
            for (std::int64_t o = 0; o < out; ++o) {
              double expected = before.at(m, o);
              double magnitude = std::abs(expected);
              for (std::int64_t r = 0; r < padded; ++r) {
                expected += t.at(m, r) * b.at(o, r);
                magnitude += std::abs(t.at(m, r) * b.at(o, r));
              }
              // A chain of at most 64 sums, and one for each run.
              ASSERT_NEAR(y.at(m, o), expected, 8e-6 * magnitude)
                  << cat(rows, " rows, ", padded, " ranks, ", out, " outputs, at ", m, " ", o);
            }
          }
          ASSERT_TRUE(y.gaps_are_poison());
        }
      }
    }
  }
}

TEST_P(Expand, RowsAloneAndInAnyTilingHaveTheSameBits) {
  Numbers numbers(2);
  constexpr std::int64_t rows = 17;
  constexpr std::int64_t out = 150;
  for (const DType type : types) {
    for (const std::int64_t padded : {8, 40, 136}) {
      const TestRows t(numbers, DType::f32, rows, padded);
      const Factor b(numbers, type, out, padded);
      TestRows whole(numbers, DType::f32, rows, out);
      const TestRows before = whole;
      expand_tile(GetParam(), tile_of(t, b, whole));
      for (std::int64_t together = 1; together <= 9; ++together) {
        TestRows y = before;
        for (std::int64_t first = 0; first < rows; first += together) {
          const std::int64_t count = std::min(together, rows - first);
          for (std::int64_t begin = 0; begin < out; begin += 11 * together) {
            // Rows of y come by number.
            std::vector<std::int32_t> y_rows;
            for (std::int64_t m = 0; m < count; ++m)
              y_rows.push_back(static_cast<std::int32_t>(first + m));
            ExpandTile piece = tile_of(t, b, y);
            piece.t += first * t.stride();
            piece.rows = count;
            piece.y_rows = y_rows.data();
            piece.out_begin = begin;
            piece.out_end = std::min(out, begin + 11 * together);
            piece.y += begin;
            expand_tile(GetParam(), piece);
          }
        }
        for (std::int64_t m = 0; m < rows; ++m)
          ASSERT_EQ(0, std::memcmp(y.row(m), whole.row(m), y.row_bytes()))
              << cat(together, " rows at a time, ", padded, " ranks, row ", m);
        ASSERT_TRUE(y.gaps_are_poison());
      }
    }
  }
}

TEST_P(Expand, OfFp8IsThatOfTheNumbersThatItHolds) {
  Numbers numbers(4);
  for (const std::int64_t rows : {1, 2, 9}) {
    const TestRows t(numbers, DType::f32, rows, 144);
    const Factor b(numbers, DType::f8_e4m3, 300, 144);
    Factor held = b;
    held.type = DType::f32;
    TestRows y(numbers, DType::f32, rows, 300);
    TestRows wanted = y;
    expand_tile(GetParam(), tile_of(t, b, y));
    expand_tile(GetParam(), tile_of(t, held, wanted));
    for (std::int64_t m = 0; m < rows; ++m)
      EXPECT_EQ(0, std::memcmp(y.row(m), wanted.row(m), y.row_bytes())) << rows << " rows";
  }
}

TEST_P(Expand, OfZerosChangesNoBit) {
  Numbers numbers(3);
  const TestRows t(numbers, DType::f32, 4, 16);
  Factor b(numbers, DType::f32, 33, 16);
  std::ranges::fill(b.wide, 0.0F);
  TestRows y(numbers, DType::f32, 4, 33);
  const TestRows before = y;
  expand_tile(GetParam(), tile_of(t, b, y));
  for (std::int64_t m = 0; m < 4; ++m)
    EXPECT_EQ(0, std::memcmp(y.row(m), before.row(m), y.row_bytes()));
}

}  // namespace
}  // namespace motley::kernels::cpu
