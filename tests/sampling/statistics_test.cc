// The instruments themselves.

#include "sampling/statistics.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sampling/draws.h"

namespace motley::sampling_tests {
namespace {

// From tables of the distribution.
TEST(SamplingStatistics, KnowChiSquaresTail) {
  EXPECT_NEAR(chi_square_tail(3.841459, 1), 0.05, 1e-6);
  EXPECT_NEAR(chi_square_tail(5.991465, 2), 0.05, 1e-6);
  EXPECT_NEAR(chi_square_tail(23.209251, 10), 0.01, 1e-6);
  EXPECT_NEAR(chi_square_tail(24.724970, 11), 0.01, 1e-6);
  EXPECT_NEAR(chi_square_tail(149.449253, 100), 0.001, 1e-6);
  EXPECT_EQ(chi_square_tail(7, 0), 1);
}

TEST(SamplingStatistics, RefuseATokenThatCannotBeDrawn) {
  EXPECT_EQ(chi_square_p({0.5, 0.5, 0}, {500, 500, 1}), 0);
  EXPECT_EQ(chi_square_p({0.5, 0.5, 0}, {500, 500, 0}), 1);
}

// Draws of a setting do not pass for those of another one that is a little off.
TEST(SamplingStatistics, SeeSmallMistakes) {
  const std::vector<float> logits = random_logits(77, 1);
  const Setting right{.params = {.temperature = 1, .frequency_penalty = 0.2F}, .answer = {3, 5, 3}};
  const std::vector<int> seen = Draws(logits).histogram(right, 20'000);
  EXPECT_GE(chi_square_p(expected_probabilities(logits, right), seen), least_p);
  const auto p_as = [&](auto change) {
    Setting wrong = right;
    change(wrong);
    return chi_square_p(expected_probabilities(logits, wrong), seen);
  };
  EXPECT_LT(p_as([](Setting& wrong) { wrong.params.temperature = 1.1F; }), least_p);
  EXPECT_LT(p_as([](Setting& wrong) { wrong.params.top_p = 0.99F; }), least_p);
  EXPECT_LT(p_as([](Setting& wrong) { wrong.params.top_k = 70; }), least_p);
  EXPECT_LT(p_as([](Setting& wrong) { wrong.params.min_p = 0.005F; }), least_p);
  const auto likeliest =
      static_cast<std::int32_t>(std::ranges::max_element(logits) - logits.begin());
  EXPECT_LT(p_as([&](Setting& wrong) {
              wrong.params.logit_bias = {{.token = likeliest, .bias = 0.15F}};
            }),
            least_p);
}

}  // namespace
}  // namespace motley::sampling_tests
