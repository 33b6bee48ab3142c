// Several ranks against one, over the goldens.

#include <algorithm>
#include <cmath>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "score/golden_model.h"

namespace motley::score_tests {
namespace {

// Of float32 log-probabilities: only the order of sums differs.
constexpr double tolerance = 5e-4;

// Every family, and what differs between files of one.
const std::vector<std::string>& plain_models() {
  static const std::vector<std::string> names{
      "qwen3_moe", "mixtral",  "mixtral_fused", "qwen2_moe",   "olmoe",       "qwen3",
      "llama",     "glm4_moe", "gpt_oss",       "deepseek_v2", "deepseek_v3", "deepseek_v3_q_proj"};
  return names;
}

struct Scored {
  std::string name;
  std::vector<runner::ScoreResult> results;
};

std::vector<Scored> score_all(GoldenModel& golden) {
  std::vector<Scored> all;
  for (const json::Value& each : cases_of(golden.golden())) {
    const std::vector<runner::ScoreLine> lines = golden.lines_of(each);
    all.push_back({*at(each, "name").if_string(),
                   golden.score(lines, std::vector(lines.size(), golden.mix_of(each)))});
  }
  return all;
}

void expect_close(const std::vector<Scored>& got, const std::vector<Scored>& wanted, int ranks) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t c = 0; c < got.size(); ++c) {
    for (std::size_t i = 0; i < got[c].results.size(); ++i) {
      const runner::ScoreResult& own = got[c].results[i];
      const runner::ScoreResult& one = wanted[c].results[i];
      for (std::size_t t = 1; t < own.token_logprobs.size(); ++t)
        ASSERT_NEAR(own.token_logprobs[t], one.token_logprobs[t], tolerance)
            << got[c].name << ", line " << i << ", token " << t << ", " << ranks << " ranks";
      for (std::size_t t = 0; t < own.top_logprobs.size(); ++t)
        ASSERT_NEAR(own.top_logprobs[t], one.top_logprobs[t], tolerance) << got[c].name;
    }
  }
}

class Sharded : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Goldens, Sharded, testing::ValuesIn(plain_models()),
                         [](const auto& model) { return model.param; });

TEST_P(Sharded, EveryCaseIsAsOnOneRank) {
  GoldenModel one(GetParam(), {.threads = 1});
  const std::vector<Scored> wanted = score_all(one);
  for (const int ranks : {2, 3, 4, 8}) {
    GoldenModel several(GetParam(), {.threads = 1, .ranks = ranks});
    expect_close(score_all(several), wanted, ranks);
  }
}

}  // namespace
}  // namespace motley::score_tests
