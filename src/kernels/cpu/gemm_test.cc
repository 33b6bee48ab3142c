#include "kernels/cpu/gemm.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/number_types.h"
#include "kernels/cpu/instruction_set.h"
#include "kernels/cpu/test_numbers.h"
#include "kernels/cpu/test_weights.h"

namespace motley::kernels::cpu {
namespace {

GemmTile tile_of(const TestInput& x, const TestWeight& w, std::vector<float>& y) {
  y.assign(static_cast<std::size_t>(x.rows * w.view.out), poison);
  return {.x = x.data(),
          .x_type = x.type,
          .x_stride = x.stride,
          .rows = x.rows,
          .w = w.view,
          .out_end = w.view.out,
          .y = y.data(),
          .y_stride = w.view.out};
}

class Gemm : public testing::TestWithParam<InstructionSet> {};
INSTANTIATE_TEST_SUITE_P(EverySet, Gemm, testing::ValuesIn(available_instruction_sets()),
                         [](const auto& test) { return std::string(name(test.param)); });

void expect_products(const TestInput& x, const TestWeight& w, const std::vector<float>& y,
                     const std::string& what) {
  for (std::int64_t m = 0; m < x.rows; ++m) {
    const std::vector<double> row = rounded_row(x, w.view.inputs, m);
    for (std::int64_t o = 0; o < w.view.out; ++o) {
      double expected = 0;
      double magnitude = 0;
      for (std::int64_t k = 0; k < x.in; ++k) {
        const double product = row[static_cast<std::size_t>(k)] * w.at(o, k);
        expected += product;
        magnitude += std::abs(product);
      }
      // Each partial sum rounds, and so does a product outside of fused operations.
      const double tolerance = 2e-6 * magnitude + 1e-30;
      ASSERT_NEAR(y[static_cast<std::size_t>(m * w.view.out + o)], expected, tolerance)
          << what << " size " << cat(x.rows, " ", w.view.out, " ", x.in) << " at "
          << cat(m, " ", o);
    }
  }
}

TEST_P(Gemm, EqualsAFloat64Loop) {
  Numbers numbers(1);
  struct Size {
    std::int64_t rows, out, in;
  };
  const std::vector<Size> sizes = {{1, 1, 1},    {1, 5, 7},    {2, 9, 31},    {3, 4, 128},
                                   {7, 6, 257},  {33, 3, 300}, {40, 7, 2050}, {1, 3, 5000},
                                   {2, 2, 4096}, {13, 1, 64}};
  for (const Format& format : formats) {
    for (const Size& size : sizes) {
      for (const DType type : {DType::f32, DType::bf16}) {
        for (const bool exact : {true, false}) {
          const TestWeight w = make_weight(numbers, format, size.out, size.in);
          const TestInput x = make_input(numbers, type, size.rows, size.in);
          std::vector<float> y;
          GemmTile tile = tile_of(x, w, y);
          tile.exact = exact;
          gemm_tile(GetParam(), tile);
          expect_products(x, w, y, format.text());
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(Gemm, RowsAloneAndInAnyTilingHaveTheSameBits) {
  Numbers numbers(2);
  for (const Format& format : formats) {
    for (const DType type : {DType::f32, DType::bf16}) {
      for (const std::int64_t in : {200, 2300}) {
        constexpr std::int64_t rows = 39;
        constexpr std::int64_t out = 11;
        const TestWeight w = make_weight(numbers, format, out, in);
        const TestInput x = make_input(numbers, type, rows, in);
        std::vector<float> whole;
        GemmTile tile = tile_of(x, w, whole);
        tile.exact = false;
        gemm_tile(GetParam(), tile);
        for (std::int64_t together = 1; together <= 17; ++together) {
          for (std::int64_t first = 0; first + together <= rows; first += together) {
            const std::int64_t begin = together % out;
            const std::int64_t width = std::min<std::int64_t>(out - begin, 1 + together % 5);
            // The rows come by number, backwards.
            std::vector<std::int32_t> chosen;
            for (std::int64_t m = 0; m < together; ++m)
              chosen.push_back(static_cast<std::int32_t>(first + together - 1 - m));
            std::vector<float> part(static_cast<std::size_t>(together * (width + 2)), poison);
            GemmTile piece = tile;
            piece.x_rows = chosen.data();
            piece.rows = together;
            piece.out_begin = begin;
            piece.out_end = begin + width;
            piece.y = part.data();
            piece.y_stride = width + 2;
            gemm_tile(GetParam(), piece);
            for (std::int64_t m = 0; m < together; ++m) {
              const float* got = part.data() + m * (width + 2);
              const float* expected =
                  whole.data() + chosen[static_cast<std::size_t>(m)] * out + begin;
              ASSERT_EQ(0, std::memcmp(got, expected, static_cast<std::size_t>(width) * 4))
                  << format.text() << " in " << in << " rows " << together;
              ASSERT_TRUE(std::isnan(got[width])) << "a number behind the tile was written";
            }
          }
        }
      }
    }
  }
}

TEST_P(Gemm, ATestCanChooseTheSetOfProductsThatAreNotTold) {
  Numbers numbers(4);
  const TestWeight w = make_weight(numbers, {}, 5, 2300);
  const TestInput x = make_input(numbers, DType::f32, 3, 2300);
  const auto product = [&](auto run) {
    std::vector<float> y;
    run(tile_of(x, w, y));
    return y;
  };
  const auto on = [&](InstructionSet set) {
    return product([&](const GemmTile& tile) { gemm_tile(set, tile); });
  };
  const auto untold = [&] { return product([](const GemmTile& tile) { gemm_tile(tile); }); };
  const InstructionSet last = available_instruction_sets().back();
  {
    const UseInstructionSet use(GetParam());
    EXPECT_EQ(untold(), on(GetParam()));
    EXPECT_EQ(untold() == on(InstructionSet::plain), GetParam() == InstructionSet::plain);
  }
  EXPECT_EQ(untold(), on(last));
}

TEST_P(Gemm, WithoutInputsGivesZeros) {
  TestWeight w;
  w.view = {.kind = WeightKind::bf16, .data = "", .out = 3, .in = 0};
  Numbers numbers(3);
  const TestInput x = make_input(numbers, DType::f32, 2, 0);
  std::vector<float> y;
  gemm_tile(GetParam(), tile_of(x, w, y));
  EXPECT_EQ(y, std::vector<float>(6, 0.0F));
}

TEST_P(Gemm, DecodesEveryCodeOfFp8) {
  // An identity picks the codes out: 256 rows of one code each, among zeros.
  std::vector<std::uint8_t> bytes(4096, 0);
  for (std::size_t code = 0; code < 256; ++code) bytes[code * 16 + 5] = std::uint8_t(code);
  const std::vector<float> scales(256, 2.0F);
  std::vector<float> x(16, 0.0F);
  x[5] = 1;
  std::vector<float> y(256, poison);
  GemmTile tile{.x = x.data(), .x_stride = 16, .rows = 1, .out_end = 256, .y = y.data()};
  tile.w = {.kind = WeightKind::f8_e4m3,
            .data = bytes.data(),
            .scales = scales.data(),
            .out = 256,
            .in = 16,
            .block_columns = 16};
  tile.y_stride = 256;
  gemm_tile(GetParam(), tile);
  for (std::size_t code = 0; code < 256; ++code) {
    const float expected = f8_e4m3{std::uint8_t(code)}.to_float() * 2;
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(y[code])) << code;
    } else {
      EXPECT_EQ(y[code], expected) << code;
    }
  }
}

TEST(DecodeRow, GivesTheFormatsExactMeaning) {
  Numbers numbers(4);
  for (const Format& format : formats) {
    const TestWeight w = make_weight(numbers, format, 5, 263);
    for (std::int64_t o = 0; o < 5; ++o) {
      std::vector<float> out(250, poison);
      decode_row(w.view, o, 13, out);
      for (std::int64_t i = 0; i < 250; ++i)
        ASSERT_EQ(out[static_cast<std::size_t>(i)], static_cast<float>(w.at(o, 13 + i)))
            << format.text();
    }
  }
}

}  // namespace
}  // namespace motley::kernels::cpu
