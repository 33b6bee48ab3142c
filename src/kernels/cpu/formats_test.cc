#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/number_types.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/instruction_set.h"
#include "kernels/cpu/test_numbers.h"
#include "kernels/cpu/test_weights.h"
#include "kernels/input_rounding.h"

// Every code of the narrow types, how inputs are rounded, and products of integers.
namespace motley::kernels::cpu {
namespace {

class Formats : public testing::TestWithParam<InstructionSet> {};
INSTANTIATE_TEST_SUITE_P(EverySet, Formats, testing::ValuesIn(available_instruction_sets()),
                         [](const auto& test) { return std::string(name(test.param)); });

// y [rows, out] of a weight whose rows and inputs lie without gaps.
std::vector<float> multiply(InstructionSet set, const WeightView& w, const std::vector<float>& x) {
  const std::int64_t rows = w.in == 0 ? 3 : static_cast<std::int64_t>(x.size()) / w.in;
  std::vector<float> y(static_cast<std::size_t>(rows * w.out), poison);
  gemm_tile(set, {.x = x.data(),
                  .x_stride = w.in,
                  .rows = rows,
                  .w = w,
                  .out_end = w.out,
                  .y = y.data(),
                  .y_stride = w.out});
  return y;
}

bool same(float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); }

// Rows of 64 codes with two scales each: the first is the row's own number, the second one.
struct ScaleCodes {
  static constexpr std::int64_t in = 64;
  std::vector<std::uint8_t> codes;
  std::vector<std::uint8_t> scales;
  WeightView view;
};

ScaleCodes every_scale(WeightKind kind, DType scale_type) {
  ScaleCodes all;
  const std::uint8_t one = scale_type == DType::f8_e8m0 ? 127 : 0x38;
  for (int row = 0; row < 256; ++row) {
    all.scales.insert(all.scales.end(), {static_cast<std::uint8_t>(row), one});
    for (int k = 0; k < ScaleCodes::in; ++k) {
      if (kind == WeightKind::f8_e4m3) {
        // Zero, subnormal, normal and the largest, of both signs.
        constexpr std::array<std::uint8_t, 8> some = {0, 1, 7, 8, 0x38, 0x45, 0x7D, 0x7E};
        const int sign = k / 8 % 2 * 128;
        all.codes.push_back(static_cast<std::uint8_t>(some[std::size_t(k % 8)] + sign));
      } else if (k % 2 == 1) {
        all.codes.push_back(static_cast<std::uint8_t>((k - 1) % 16 + 16 * (k % 16)));
      }
    }
  }
  all.view = {.kind = kind,
              .scale_type = scale_type,
              .data = all.codes.data(),
              .scales = all.scales.data(),
              .out = 256,
              .in = ScaleCodes::in,
              .block_columns = 32};
  return all;
}

float scale_of(DType type, std::uint8_t code) {
  return type == DType::f8_e8m0 ? f8_e8m0{code}.to_float() : f8_e4m3{code}.to_float();
}

TEST_P(Formats, EveryScaleOfAByteMeansWhatItsTypeSays) {
  for (const WeightKind kind : {WeightKind::f4_e2m1, WeightKind::f8_e4m3}) {
    for (const DType type : {DType::f8_e8m0, DType::f8_e4m3}) {
      const ScaleCodes all = every_scale(kind, type);
      const auto number = [&](std::size_t row, std::size_t k) {
        const float code = kind == WeightKind::f8_e4m3
                               ? f8_e4m3{all.codes[row * 64 + k]}.to_float()
                               : f4_e2m1{static_cast<std::uint8_t>(k % 16)}.to_float();
        return code * scale_of(type, all.scales[2 * row + k / 32]);
      };
      // One input of 64 is one: its numbers come alone, unless others are NaN or infinite.
      std::vector<float> x(64 * 64, 0.0F);
      for (std::size_t k = 0; k < 64; ++k) x[k * 65] = 1;
      const std::vector<float> together = multiply(GetParam(), all.view, x);
      for (std::size_t k = 0; k < 64; ++k) {
        std::vector<float> row_of_x(64, 0.0F);
        row_of_x[k] = 1;
        const std::vector<float> alone = multiply(GetParam(), all.view, row_of_x);
        for (std::size_t row = 0; row < 256; ++row) {
          float expected = 0;
          for (std::size_t i = 0; i < 64; ++i) expected += number(row, i) * x[k * 64 + i];
          ASSERT_TRUE(same(alone[row], expected) && same(together[k * 256 + row], expected))
              << "kind " << int(kind) << " scale " << name(type) << " " << row << " input " << k
              << ": " << alone[row] << " and " << together[k * 256 + row] << " for " << expected;
        }
      }
    }
  }
}

TEST_P(Formats, TransposedGivesTheNumbersThemselves) {
  const float one = 1;
  for (const WeightKind kind : {WeightKind::f4_e2m1, WeightKind::f8_e4m3}) {
    for (const DType type : {DType::f8_e8m0, DType::f8_e4m3}) {
      const ScaleCodes all = every_scale(kind, type);
      for (std::int64_t row = 0; row < 256; ++row) {
        std::vector<float> y(64, poison);
        transposed_tile(GetParam(), {.x = &one,
                                     .x_stride = 1,
                                     .rows = 1,
                                     .w = all.view,
                                     .first = row,
                                     .count = 1,
                                     .in_end = 64,
                                     .y = y.data()});
        std::vector<float> expected(64);
        decode_row(all.view, row, 0, expected);
        for (std::size_t k = 0; k < 64; ++k)
          ASSERT_TRUE(same(y[k], expected[k])) << row << " " << k << ": " << y[k];
      }
    }
  }
}

TEST_P(Formats, WithoutInputsGiveZeros) {
  Numbers numbers(5);
  for (const Format& format : formats) {
    const TestWeight w = make_weight(numbers, format, 5, 0);
    EXPECT_EQ(multiply(GetParam(), w.view, {0}), std::vector<float>(15, 0.0F)) << format.text();
  }
}

// A product with it gives the inputs as they are after rounding.
struct Identity {
  std::vector<float> numbers;
  WeightView view;
};
Identity identity(std::size_t size, const InputRounding& rounding) {
  Identity all;
  all.numbers.assign(size * size, 0.0F);
  for (std::size_t i = 0; i < size; ++i) all.numbers[i * (size + 1)] = 1;
  all.view = {.kind = WeightKind::f32,
              .data = all.numbers.data(),
              .out = static_cast<std::int64_t>(size),
              .in = static_cast<std::int64_t>(size),
              .inputs = rounding};
  return all;
}

TEST_P(Formats, InputsAreRoundedToTheNearestCodeOfFp8) {
  std::vector<float> x = {448, 455, 464, 480, 1e30F, 1e-30F, 0x1p-10F, 0x1.8p-9F};
  const float infinity = std::numeric_limits<float>::infinity();
  for (int code = 0; code < 0x7E; ++code) {
    const float low = f8_e4m3{static_cast<std::uint8_t>(code)}.to_float();
    const float high = f8_e4m3{static_cast<std::uint8_t>(code + 1)}.to_float();
    const float middle = (low + high) / 2;
    x.insert(x.end(),
             {low, middle, std::nextafter(middle, 0.0F), std::nextafter(middle, infinity)});
  }
  const std::size_t half = x.size();
  for (std::size_t i = 0; i < half; ++i) x.push_back(-x[i]);
  const InputRounding rounding{
      .scales = InputRounding::Scales::fixed, .type = DType::f8_e4m3, .scale = 1};
  const Identity w = identity(x.size(), rounding);
  const std::vector<float> y = multiply(GetParam(), w.view, x);
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(y[i], f8_e4m3::from(x[i]).to_float()) << x[i];
    EXPECT_EQ(y[i], static_cast<float>(nearest_f8(static_cast<double>(x[i])))) << x[i];
  }
}

TEST_P(Formats, InputsAreRoundedToTheNearestInteger) {
  std::vector<float> x = {1e30F, -1e30F, 1e-30F};
  for (int eighth = -400; eighth <= 400; ++eighth) x.push_back(static_cast<float>(eighth) / 8);
  const InputRounding rounding{
      .scales = InputRounding::Scales::fixed, .type = DType::i8, .scale = 0.25F, .zero = 5};
  const Identity w = identity(x.size(), rounding);
  const std::vector<float> y = multiply(GetParam(), w.view, x);
  for (std::size_t i = 0; i < x.size(); ++i) {
    // Ties go to the even quotient, and then the zero point is added.
    const double code =
        std::clamp(std::nearbyint(static_cast<double>(x[i]) * 4) + 5, -128.0, 127.0);
    EXPECT_EQ(y[i], static_cast<float>((code - 5) / 4)) << x[i];
  }
}

// Which other devices have, too.
TEST_P(Formats, InputsAreWhatTheArithmeticOfOneNumberSays) {
  Numbers numbers(9);
  constexpr std::size_t size = 300;
  using Scales = InputRounding::Scales;
  for (const InputRounding& rounding :
       {InputRounding{.scales = Scales::fixed, .scale = 0.02F, .zero = 3},
        InputRounding{.scales = Scales::fixed, .type = DType::f8_e4m3, .scale = 0.3F},
        InputRounding{.scales = Scales::row},
        InputRounding{.scales = Scales::row_block, .columns = 300},
        InputRounding{.scales = Scales::row, .type = DType::f8_e4m3},
        InputRounding{.scales = Scales::row_block, .type = DType::f8_e4m3, .columns = 300},
        InputRounding{.scales = Scales::row_block,
                      .type = DType::f8_e4m3,
                      .power_of_two = true,
                      .columns = 300}}) {
    const std::vector<float> x = numbers.floats(size, -3, 3);
    float largest = 0;
    for (const float each : x) largest = std::max(largest, std::abs(each));
    const Identity w = identity(size, rounding);
    const std::vector<float> y = multiply(GetParam(), w.view, x);
    for (std::size_t i = 0; i < size; ++i)
      EXPECT_EQ(y[i], rounded_input(rounding, input_scale(rounding, largest), x[i])) << x[i];
  }
}

// What is no number stays none, and zeros stay zeros.
TEST_P(Formats, RowsOfZerosAndRowsWithNaNs) {
  Numbers numbers(6);
  constexpr std::int64_t in = 300;
  for (const Format& format : formats) {
    if (format.inputs.scales == InputRounding::Scales::none) continue;
    const TestWeight w = make_weight(numbers, format, 5, in);
    std::vector<float> x = numbers.floats(3 * in, -1, 1);
    std::fill_n(x.begin(), in, 0.0F);
    x[in + 77] = poison;
    const std::vector<float> y = multiply(GetParam(), w.view, x);
    for (std::size_t o = 0; o < 5; ++o) {
      EXPECT_EQ(y[o], 0.0F) << format.text();
      EXPECT_TRUE(std::isnan(y[5 + o])) << format.text();
      EXPECT_FALSE(std::isnan(y[10 + o])) << format.text();
    }
  }
}

TEST_P(Formats, ProductsOfIntegersHaveTheSameBitsOnEverySet) {
  Numbers numbers(7);
  for (const Format& format : integer_formats) {
    for (const std::int64_t in : {1, 63, 64, 200, 1024, 2300}) {
      const TestWeight w = make_weight(numbers, format, 11, in);
      const std::vector<float> x = numbers.floats(8 * in, -1, 1);
      const std::vector<float> expected = multiply(InstructionSet::plain, w.view, x);
      const std::vector<float> y = multiply(GetParam(), w.view, x);
      EXPECT_EQ(0, std::memcmp(y.data(), expected.data(), y.size() * sizeof(float)))
          << format.text() << " in " << in;
    }
  }
}

TEST_P(Formats, ProductsOfIntegersAreExact) {
  // The largest that there are; a pair of them is beyond 16 bits.
  constexpr std::int64_t in = 1000;
  const std::vector<std::int8_t> lowest(in, -128);
  const float one = 1;
  const WeightView w{.kind = WeightKind::i8,
                     .data = lowest.data(),
                     .scales = &one,
                     .out = 1,
                     .in = in,
                     .block_columns = in,
                     .inputs = {.scales = InputRounding::Scales::fixed, .scale = 1}};
  EXPECT_EQ(multiply(GetParam(), w, std::vector<float>(in, -128.0F)),
            std::vector<float>{128.0F * 128 * in});
  EXPECT_EQ(multiply(GetParam(), w, std::vector<float>(in, 127.0F)),
            std::vector<float>{-127.0F * 128 * in});
  // Both zero points at the end of their range.
  WeightView moved = w;
  const std::uint8_t zero = 255;
  moved.zero_points = &zero;
  moved.inputs.zero = 127;
  EXPECT_EQ(multiply(GetParam(), moved, std::vector<float>(in, -1000.0F)),
            std::vector<float>{255.0F * 255 * in});
}

}  // namespace
}  // namespace motley::kernels::cpu
