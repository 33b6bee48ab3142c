#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/instruction_set.h"
#include "kernels/cpu/test_numbers.h"
#include "kernels/cpu/test_weights.h"

namespace motley::kernels::cpu {
namespace {

class Transposed : public testing::TestWithParam<InstructionSet> {};
INSTANTIATE_TEST_SUITE_P(EverySet, Transposed, testing::ValuesIn(available_instruction_sets()),
                         [](const auto& test) { return std::string(name(test.param)); });

constexpr std::int64_t gap = 3;  // behind each row of y

TransposedTile tile_of(const TestInput& x, const TestWeight& w, std::int64_t first,
                       std::vector<float>& y, float filled) {
  y.assign(static_cast<std::size_t>(x.rows * (w.view.in + gap)), filled);
  return {.x = x.data(),
          .x_type = x.type,
          .x_stride = x.stride,
          .rows = x.rows,
          .w = w.view,
          .first = first,
          .count = x.in,
          .in_end = w.view.in,
          .y = y.data(),
          .y_stride = w.view.in + gap};
}

TEST_P(Transposed, EqualsAFloat64Loop) {
  Numbers numbers(1);
  struct Size {
    std::int64_t rows, count, in;
  };
  const std::vector<Size> sizes = {{1, 1, 1},    {1, 5, 7},    {2, 9, 31},
                                   {3, 64, 128}, {5, 65, 257}, {6, 3, 300},
                                   {7, 130, 9},  {13, 17, 64}, {1, 128, 512}};
  for (const Format& format : formats) {
    for (const Size& size : sizes) {
      for (const DType type : {DType::f32, DType::bf16}) {
        for (const bool add : {false, true}) {
          constexpr std::int64_t first = 2;
          const TestWeight w = make_weight(numbers, format, first + size.count + 1, size.in);
          const TestInput x = make_input(numbers, type, size.rows, size.count);
          std::vector<float> y;
          TransposedTile tile = tile_of(x, w, first, y, add ? 0.5F : poison);
          tile.add = add;
          transposed_tile(GetParam(), tile);
          for (std::int64_t m = 0; m < size.rows; ++m) {
            for (std::int64_t k = 0; k < size.in; ++k) {
              double expected = add ? 0.5 : 0;
              double magnitude = expected;
              for (std::int64_t j = 0; j < size.count; ++j) {
                expected += x.at(m, j) * w.at(first + j, k);
                magnitude += std::abs(x.at(m, j) * w.at(first + j, k));
              }
              // A chain of at most 64 sums, and one for each run.
              ASSERT_NEAR(y[static_cast<std::size_t>(m * tile.y_stride + k)], expected,
                          8e-6 * magnitude + 1e-30)
                  << format.text() << " size " << cat(size.rows, " ", size.count, " ", size.in)
                  << " at " << cat(m, " ", k);
            }
            const float behind = y[static_cast<std::size_t>(m * tile.y_stride + size.in)];
            ASSERT_TRUE(add ? behind == 0.5F : std::isnan(behind)) << "written behind a row";
          }
        }
      }
    }
  }
}

TEST_P(Transposed, RowsAloneAndInAnyTilingHaveTheSameBits) {
  Numbers numbers(2);
  constexpr std::int64_t rows = 19;
  constexpr std::int64_t count = 70;
  constexpr std::int64_t in = 600;
  for (const Format& format : formats) {
    for (const DType type : {DType::f32, DType::bf16}) {
      const TestWeight w = make_weight(numbers, format, count, in);
      const TestInput x = make_input(numbers, type, rows, count);
      std::vector<float> whole;
      transposed_tile(GetParam(), tile_of(x, w, 0, whole, poison));
      for (std::int64_t together = 1; together <= 8; ++together) {
        for (std::int64_t begin = 0; begin < in; begin += 37 * together) {
          const std::int64_t end = std::min(in, begin + 37 * together);
          // Rows come and go by number, backwards.
          std::vector<std::int32_t> x_rows;
          std::vector<std::int32_t> y_rows;
          for (std::int64_t m = 0; m < together; ++m) {
            x_rows.push_back(static_cast<std::int32_t>(rows - 1 - m));
            y_rows.push_back(static_cast<std::int32_t>(together - 1 - m));
          }
          std::vector<float> part;
          TransposedTile piece = tile_of(x, w, 0, part, poison);
          piece.x_rows = x_rows.data();
          piece.y_rows = y_rows.data();
          piece.rows = together;
          piece.in_begin = begin;
          piece.in_end = end;
          piece.y += begin;
          transposed_tile(GetParam(), piece);
          for (std::int64_t m = 0; m < together; ++m) {
            const float* got = part.data() + (together - 1 - m) * piece.y_stride;
            const float* expected = whole.data() + (rows - 1 - m) * piece.y_stride;
            std::int64_t written = 0;
            for (std::int64_t k = begin; k < end; ++k) {
              const std::int64_t at = format.ordered ? w.view.input_order[k] : k;
              ASSERT_EQ(got[at], expected[at])
                  << format.text() << " rows " << together << " inputs from " << begin;
            }
            for (std::int64_t k = 0; k < piece.y_stride; ++k) written += !std::isnan(got[k]);
            ASSERT_EQ(written, end - begin) << "a number beside the tile's was written";
          }
        }
      }
    }
  }
}

TEST_P(Transposed, WithoutRowsOfTheWeightGivesZeros) {
  Numbers numbers(3);
  const TestWeight w = make_weight(numbers, WeightKind::bf16, 1, 20);
  const TestInput x = make_input(numbers, DType::f32, 2, 0);
  std::vector<float> y;
  transposed_tile(GetParam(), tile_of(x, w, 0, y, poison));
  for (std::int64_t m = 0; m < 2; ++m) {
    for (std::int64_t k = 0; k < 20; ++k)
      EXPECT_EQ(y[static_cast<std::size_t>(m * (20 + gap) + k)], 0.0F);
  }
}

TEST_P(Transposed, ANaNOfFp8StaysWhereItIs) {
  std::vector<std::uint8_t> bytes(200, 0x38);  // 1
  bytes[70] = 0x7F;
  const float scale = 2;
  const std::vector<float> scales(4, scale);
  const float x = 1;
  std::vector<float> y(200, poison);
  transposed_tile(GetParam(), {.x = &x,
                               .rows = 1,
                               .w = {.kind = WeightKind::f8_e4m3,
                                     .data = bytes.data(),
                                     .scales = scales.data(),
                                     .out = 1,
                                     .in = 200,
                                     .block_columns = 64},
                               .count = 1,
                               .in_end = 200,
                               .y = y.data()});
  for (std::size_t k = 0; k < 200; ++k) {
    if (k == 70) {
      EXPECT_TRUE(std::isnan(y[k]));
    } else {
      EXPECT_EQ(y[k], scale) << k;
    }
  }
}

}  // namespace
}  // namespace motley::kernels::cpu
