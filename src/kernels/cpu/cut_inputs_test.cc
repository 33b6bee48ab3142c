#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/instruction_set.h"
#include "kernels/cpu/test_numbers.h"
#include "kernels/elementary.h"

// Rows of inputs that are cut: parts that know the maxima of whole rows are rounded as whole rows.
namespace motley::kernels::cpu {
namespace {

using Scales = InputRounding::Scales;

constexpr std::int64_t width = 1300;  // more than are packed at a time
constexpr std::int64_t rows = 5;

class CutInputs : public testing::TestWithParam<InstructionSet> {};
INSTANTIATE_TEST_SUITE_P(EverySet, CutInputs, testing::ValuesIn(available_instruction_sets()),
                         [](const auto& test) { return std::string(name(test.param)); });

// Columns [begin, end) of rows in their type.
struct Part {
  DType type;
  std::int64_t begin;
  std::int64_t end;
  std::vector<float> wide;
  std::vector<bf16> narrow;

  std::int64_t size() const { return end - begin; }
  const void* data() const {
    return type == DType::f32 ? static_cast<const void*>(wide.data()) : narrow.data();
  }
};
Part part_of(const std::vector<float>& x, DType type, std::int64_t begin, std::int64_t end) {
  Part part{type, begin, end, {}, {}};
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t k = begin; k < end; ++k) {
      const float number = x[static_cast<std::size_t>(row * width + k)];
      part.wide.push_back(number);
      part.narrow.push_back(bf16::from(number));
    }
  }
  return part;
}

// The inputs as a weight of that kind takes them: its numbers are those of the identity.
std::vector<float> taken(InstructionSet set, const Part& part, WeightKind kind,
                         const InputRounding& rounding, const InputMaxima& maxima) {
  const auto size = static_cast<std::size_t>(part.size());
  std::vector<std::int8_t> codes(size * size);
  std::vector<float> numbers(size * size);
  for (std::size_t i = 0; i < size; ++i) codes[i * (size + 1)] = 1, numbers[i * (size + 1)] = 1;
  const std::vector<float> ones(size, 1);
  const bool integers = kind == WeightKind::i8;
  std::vector<float> y(rows * size);
  gemm_tile(set, {.x = part.data(),
                  .x_type = part.type,
                  .x_stride = part.size(),
                  .maxima = maxima,
                  .rows = rows,
                  .w = {.kind = kind,
                        .data = integers ? static_cast<const void*>(codes.data()) : numbers.data(),
                        .scales = integers ? ones.data() : nullptr,
                        .out = part.size(),
                        .in = part.size(),
                        .block_columns = integers ? part.size() : 0,
                        .inputs = rounding},
                  .out_end = part.size(),
                  .y = y.data(),
                  .y_stride = part.size()});
  return y;
}

struct Case {
  WeightKind kind;
  InputRounding rounding;
};
const std::vector<Case> cases{
    {WeightKind::f32, {.scales = Scales::row}},
    {WeightKind::i8, {.scales = Scales::row}},
    {WeightKind::f32, {.scales = Scales::row, .type = DType::f8_e4m3}},
    {WeightKind::f32, {.scales = Scales::row_block, .type = DType::f8_e4m3, .columns = 128}},
    {WeightKind::i8, {.scales = Scales::row_block, .columns = 128}},
    {WeightKind::f32,
     {.scales = Scales::row_block, .type = DType::f8_e4m3, .power_of_two = true, .columns = 32}},
};

// What a rank has: its part, how it is rounded, and the first scale that it has inputs of.
struct Rank {
  Part part;
  InputRounding rounding;
  std::int64_t first = 0;
};

std::int64_t scales_of(const InputRounding& whole) {
  return whole.scales == Scales::row ? 1 : (width + whole.columns - 1) / whole.columns;
}

std::vector<Rank> ranks_of(const std::vector<float>& x, DType type, const InputRounding& whole) {
  // Inside blocks and at their bounds; one part has a block with both its neighbours.
  constexpr std::array<std::int64_t, 6> bounds{0, 100, 120, 640, 641, width};
  std::vector<Rank> ranks;
  for (std::size_t i = 0; i + 1 < bounds.size(); ++i) {
    Rank& rank = ranks.emplace_back(Rank{part_of(x, type, bounds[i], bounds[i + 1]), whole});
    if (whole.scales == Scales::row) continue;
    rank.rounding.first = rank.part.begin % whole.columns;
    rank.first = rank.part.begin / whole.columns;
  }
  return ranks;
}

// Over all ranks, [rows, scales].
std::vector<float> maxima_of(const std::vector<Rank>& ranks, std::int64_t scales) {
  std::vector<float> maxima(static_cast<std::size_t>(rows * scales), 0.0F);
  for (const Rank& rank : ranks) {
    std::vector<float> own(maxima.size(), -1.0F);
    cpu_table().input_maxima({.rows = rows,
                              .width = rank.part.size(),
                              .x = rank.part.data(),
                              .x_type = rank.part.type,
                              .x_stride = rank.part.size(),
                              .rounding = rank.rounding,
                              .scales = scales,
                              .first = rank.first,
                              .out = own.data()},
                             {});
    for (std::size_t m = 0; m < own.size(); ++m) {
      EXPECT_GE(own[m], 0) << m;
      maxima[m] = std::max(maxima[m], own[m]);
    }
  }
  return maxima;
}

TEST_P(CutInputs, AreRoundedAsInWholeRows) {
  Numbers numbers(3);
  std::vector<float> x = numbers.floats(rows * width, -1, 1);
  // Most parts have no number as large as the row's largest.
  for (std::size_t row = 0; row < rows; ++row) x[row * width + row * 300] = 9;
  for (const auto& [kind, whole] : cases) {
    for (const DType type : {DType::f32, DType::bf16}) {
      const std::vector<float> expected =
          taken(GetParam(), part_of(x, type, 0, width), kind, whole, {});
      const std::int64_t scales = scales_of(whole);
      const std::vector<Rank> ranks = ranks_of(x, type, whole);
      const std::vector<float> maxima = maxima_of(ranks, scales);
      for (const Rank& rank : ranks) {
        const std::int64_t size = rank.part.size();
        const std::vector<float> got =
            taken(GetParam(), rank.part, kind, rank.rounding, {maxima.data() + rank.first, scales});
        for (std::int64_t row = 0; row < rows; ++row)
          for (std::int64_t k = 0; k < size; ++k)
            ASSERT_EQ(got[static_cast<std::size_t>(row * size + k)],
                      expected[static_cast<std::size_t>(row * width + rank.part.begin + k)])
                << "kind " << int(kind) << " by " << whole.columns << ", row " << row << ", input "
                << rank.part.begin + k;
      }
    }
  }
}

TEST_P(CutInputs, MaximaLeaveOutNaNsAndRowsThatAreElsewhere) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> x{nan, -3, 2, nan, nan, nan, 0, -INFINITY, 1};
  const std::vector<std::int32_t> x_rows{2, 7, 0, 1, 3};
  const std::int32_t x_count = 3;
  std::vector<float> out(5, -1.0F);
  elementary_table(GetParam())
      .input_maxima({.rows = 5,
                     .width = 3,
                     .x = x.data(),
                     .x_stride = 3,
                     .x_rows = x_rows.data(),
                     .x_count = &x_count,
                     .rounding = {.scales = Scales::row},
                     .scales = 1,
                     .out = out.data()},
                    {});
  EXPECT_EQ(out, (std::vector<float>{INFINITY, 0, 3, 0, 0}));
}

}  // namespace
}  // namespace motley::kernels::cpu
