#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "score/golden_model.h"

// What models on several ranks are held to: one rank's scores, over the goldens.
namespace motley::score_tests {

// Of float32 log-probabilities: only the order of sums differs.
inline constexpr double tolerance = 5e-4;

// Every family, and what differs between files of one.
inline const std::vector<std::string>& plain_models() {
  static const std::vector<std::string> names{"qwen3_moe",     "mixtral",     "mixtral_fused",
                                              "qwen2_moe",     "olmoe",       "qwen3",
                                              "llama",         "glm4_moe",    "gpt_oss",
                                              "deepseek_v2",   "deepseek_v3", "deepseek_v3_q_proj",
                                              "glm4_moe_lite", "qwen3_vl_moe"};
  return names;
}

// Ranks, and the groups of them over which experts are dealt.
struct Layout {
  int ranks = 1;
  int groups = 1;
};
// The goldens have 5 or 12 experts, so some groups have more than others.
inline constexpr std::array<Layout, 4> groups_of_experts{{{2, 2}, {3, 3}, {4, 2}, {4, 4}}};

inline std::vector<std::string> quantised_models() {
  std::vector<std::string> names;
  for (const std::string& name : golden_models())
    if (std::ranges::find(plain_models(), name) == plain_models().end()) names.push_back(name);
  return names;
}

// Those of all models, and those of models with experts.
inline std::vector<Layout> layouts_of(const GoldenModel& model, std::vector<Layout> of_all) {
  if (model.model().config().has_experts())
    of_all.insert(of_all.end(), groups_of_experts.begin(), groups_of_experts.end());
  return of_all;
}

struct Scored {
  std::string name;
  std::vector<runner::ScoreResult> results;
};

inline std::vector<Scored> score_all(GoldenModel& golden) {
  std::vector<Scored> all;
  for (const json::Value& each : cases_of(golden.golden())) {
    const std::vector<runner::ScoreLine> lines = golden.lines_of(each);
    all.push_back({*at(each, "name").if_string(),
                   golden.score(lines, std::vector(lines.size(), golden.mix_of(each)))});
  }
  return all;
}

inline void expect_close(const std::vector<Scored>& got, const std::vector<Scored>& wanted,
                         const Layout& layout) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t c = 0; c < got.size(); ++c) {
    for (std::size_t i = 0; i < got[c].results.size(); ++i) {
      const runner::ScoreResult& own = got[c].results[i];
      const runner::ScoreResult& one = wanted[c].results[i];
      for (std::size_t t = 1; t < own.token_logprobs.size(); ++t)
        ASSERT_NEAR(own.token_logprobs[t], one.token_logprobs[t], tolerance)
            << got[c].name << ", line " << i << ", token " << t << ", " << layout.ranks
            << " ranks, " << layout.groups << " groups";
      for (std::size_t t = 0; t < own.top_logprobs.size(); ++t)
        ASSERT_NEAR(own.top_logprobs[t], one.top_logprobs[t], tolerance) << got[c].name;
    }
  }
}

inline void expect_same_bits(const std::vector<Scored>& got, const std::vector<Scored>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t c = 0; c < got.size(); ++c)
    for (std::size_t i = 0; i < got[c].results.size(); ++i) {
      EXPECT_EQ(got[c].results[i].token_logprobs, wanted[c].results[i].token_logprobs)
          << got[c].name;
      EXPECT_EQ(got[c].results[i].top_logprobs, wanted[c].results[i].top_logprobs) << got[c].name;
    }
}

// Of the tokens' log-probabilities.
inline double mean_difference(const std::vector<Scored>& got, const std::vector<Scored>& wanted) {
  double sum = 0;
  int count = 0;
  for (std::size_t c = 0; c < got.size(); ++c) {
    for (std::size_t i = 0; i < got[c].results.size(); ++i) {
      const std::vector<float>& own = got[c].results[i].token_logprobs;
      const std::vector<float>& one = wanted[c].results[i].token_logprobs;
      for (std::size_t t = 1; t < own.size(); ++t, ++count) sum += std::abs(own[t] - one[t]);
    }
  }
  return sum / count;
}

// The tokens that the model finds most likely, one after the other, are those that were recorded.
inline void expect_greedy_as_recorded(GoldenModel& golden) {
  for (const json::Value& each : cases_of(golden.golden())) {
    const json::Value& greedy = at(each, "greedy");
    runner::ScoreLine line;
    for (const json::Value& token : *at(greedy, "prompt").if_array())
      line.tokens.push_back(static_cast<std::int32_t>(*token.if_integer()));
    const std::size_t prompt = line.tokens.size();
    std::vector<std::int32_t> expected;
    for (const json::Value& token : *at(greedy, "token_ids").if_array())
      expected.push_back(static_cast<std::int32_t>(*token.if_integer()));
    line.tokens.insert(line.tokens.end(), expected.begin(), expected.end());
    const auto result = golden.score({line}, {golden.mix_of(each)}, 1).front();
    const std::vector<std::int32_t> drawn(result.top_ids.begin() + std::ptrdiff_t(prompt) - 1,
                                          result.top_ids.end() - 1);
    EXPECT_EQ(drawn, expected) << *at(each, "name").if_string();
  }
}

}  // namespace motley::score_tests
