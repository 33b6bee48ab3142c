// 512 adapters live at once on the CPU: every row of one batch says what it says alone, and what
// merged weights say.

#include "score/many_adapters.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "score/golden_model.h"
#include "score/merged_weights.h"

namespace motley::score_tests {
namespace {

constexpr std::size_t rows = 512;

float max_apart(const ManyAdapters::Answer& a, const ManyAdapters::Answer& b) {
  float most = a.size() == b.size() ? 0 : INFINITY;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    const float apart = std::abs(a[i] - b[i]);
    most = std::isnan(apart) ? INFINITY : std::max(most, apart);
  }
  return most;
}

class LiveAdapters : public testing::TestWithParam<bool> {};

TEST_P(LiveAdapters, Of512AtOnceAnswerAsEachAlone) {
  GoldenModel golden("qwen3_moe", {.exact = GetParam()});
  ManyAdapters many(golden.model(), golden.device(), {.rows = rows});
  EXPECT_EQ(many.pool().usage().pinned_adapters, 512);
  const std::vector<ManyAdapters::Answer> together = many.all();
  EXPECT_EQ(many.pool().usage().evictions, 0);
  ASSERT_EQ(together.size(), rows);
  for (std::size_t row = 0; row < rows; ++row)
    ASSERT_EQ(many.alone(row), together[row]) << "row " << row;
  // Each adapter says something of its own.
  for (const std::size_t row : {0, 100, 511})
    EXPECT_GT(max_apart(many.of_base(row), together[row]), 0.05) << "row " << row;
  EXPECT_EQ(std::set<ManyAdapters::Answer>(together.begin(), together.end()).size(), rows);
}

TEST_P(LiveAdapters, MixesOfTwoAtOnceAnswerAsEachAlone) {
  GoldenModel golden("qwen3_moe", {.exact = GetParam()});
  ManyAdapters many(golden.model(), golden.device(), {.rows = 256, .adapters_per_row = 2});
  EXPECT_EQ(many.pool().usage().pinned_adapters, 512);
  const std::vector<ManyAdapters::Answer> together = many.all();
  for (std::size_t row = 0; row < together.size(); ++row)
    ASSERT_EQ(many.alone(row), together[row]) << "row " << row;
}

INSTANTIATE_TEST_SUITE_P(Compute, LiveAdapters, testing::Bool(), [](const auto& exact) {
  return std::string(exact.param ? "f32" : "bf16");
});

TEST(MergedAdapters, AnswerAsAmong512Live) {
  GoldenModel golden("qwen3_moe", {});
  ManyAdapters many(golden.model(), golden.device(), {.rows = rows});
  const std::vector<ManyAdapters::Answer> together = many.all();
  for (const std::size_t row : {0, 3, 17, 130, 255, 256, 400, 511}) {
    const lora::Adapter adapter =
        numbered_adapter(golden.model().base_view(), static_cast<std::uint32_t>(row));
    const auto merged = load_merged(golden.folder(), {{.adapter = &adapter}}, golden.device());
    ManyAdapters base(*merged, golden.device(), {.rows = 1});
    EXPECT_LE(max_apart(base.of_base(row), together[row]), 1e-4) << "row " << row;
  }
}

}  // namespace
}  // namespace motley::score_tests
