#include "runner/score.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace motley::runner {
namespace {

// Lines as the program reads them.
std::vector<ScoreLine> read(std::string_view text) {
  return parse_score_lines(text, "lines", {.vocabulary = 10, .adapters = {"a", "b"}, .encode = {}})
      .value();
}

// The model's scores of a line; the first entry is unused.
ScoreResult says(std::vector<float> rest) {
  rest.insert(rest.begin(), std::numeric_limits<float>::quiet_NaN());
  return {.token_logprobs = std::move(rest), .top_ids = {}, .top_logprobs = {}};
}

// Differences by hand. Base: 0.5, 1, 0 and 2 over two lines, so half squares of 0.125, 0.5, 0 and
// 2: 2.625 / 4, a mean of 3.5 / 4, at most 2. Adapter a: 0.25 and 0.75: 0.03125 + 0.28125 over two.
TEST(ScoreComparison, IsByAdapterOverAllTokens) {
  const auto lines = read(
      R"({"token_ids": [1, 2, 3, 4], "token_logprobs": [null, -1.5, -1, -0.25]}
{"token_ids": [1, 2, 3], "adapter": "a", "token_logprobs": [null, -0.25, -3.75]}
{"token_ids": [5, 6], "token_logprobs": [null, -4]}
{"token_ids": [5, 6, 7]}
{"token_ids": [5], "adapter": "b", "token_logprobs": [null]}
{"token_ids": [7, 8], "adapters": [{"name": "b"}, {"name": "a", "scale": 0.5}], "token_logprobs": [null, -8]}
)");
  const std::vector<ScoreResult> results = {
      says({-1, -2, -0.25F}), says({-0.5F, -3}), says({-2}),
      says({-7, -9}),         says({}),          says({-9.5F})};
  EXPECT_EQ(compare_with_references(lines, results),
            "difference to the references: a mean(0.5 d^2) 0.15625, mean 0.5, largest 0.75; "
            "b + a mean(0.5 d^2) 1.125, mean 1.5, largest 1.5; "
            "base mean(0.5 d^2) 0.65625, mean 0.875, largest 2\n");
}

TEST(ScoreComparison, SaysNothingWithoutReferences) {
  const auto lines =
      read("{\"token_ids\": [1, 2]}\n{\"token_ids\": [1], \"token_logprobs\": [null]}\n");
  EXPECT_EQ(compare_with_references(lines, std::vector{says({-1}), says({})}), "");
}

TEST(ScoreComparison, IsZeroForTheSameNumbers) {
  const auto lines = read("{\"token_ids\": [1, 2, 3], \"token_logprobs\": [null, -1.25, -0.5]}\n");
  EXPECT_EQ(compare_with_references(lines, std::vector{says({-1.25F, -0.5F})}),
            "difference to the references: base mean(0.5 d^2) 0, mean 0, largest 0\n");
}

}  // namespace
}  // namespace motley::runner
