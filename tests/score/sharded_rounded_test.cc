// Several ranks of checkpoints whose activations are quantised by the file's scales, by row or by
// block: ranks that cut a row round it as one rank does.

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "score/golden_model.h"
#include "score/rounded_inputs.h"
#include "score/sharded_scores.h"

namespace motley::score_tests {
namespace {

class ShardedRounded : public testing::TestWithParam<std::string> {
 protected:
  static GoldenModel::Options on(const Layout& layout, GoldenModel::Options options = {}) {
    options.exact_inputs = false;
    options.threads = 1;
    options.ranks = layout.ranks;
    options.expert_groups = layout.groups;
    return options;
  }
  // The goldens' widths are cut inside blocks; of some no rank but the first has heads of its own.
  std::vector<Layout> layouts() const {
    const GoldenModel one(GetParam(), on({}));
    std::vector<Layout> all{{2}, {3}, {4}, {8}};
    if (one.model().config().has_experts()) {
      all.insert(all.end(), groups_of_experts.begin(), groups_of_experts.end());
      all.push_back({8, 4});
    }
    return all;
  }
};
INSTANTIATE_TEST_SUITE_P(Goldens, ShardedRounded, testing::ValuesIn(models_with_rounded_inputs()),
                         [](const auto& model) { return model.param; });

// The base and adapters, whose deltas are of unrounded activations.
TEST_P(ShardedRounded, EqualsTheEmulationInTheMean) {
  for (const Layout& layout : layouts()) {
    SCOPED_TRACE(cat(layout.ranks, " ranks, ", layout.groups, " groups"));
    GoldenModel several(GetParam(), on(layout));
    const auto means = mean_differences(several);
    EXPECT_EQ(means.size(), 3U);
    for (const auto& [adapter, mean] : means)
      EXPECT_LE(mean, rounded_tolerance_of(GetParam())) << adapter;
  }
}

// A code differs by one where its number is on the edge.
TEST_P(ShardedRounded, EveryCaseIsAsOnOneRankInTheMean) {
  GoldenModel one(GetParam(), on({}));
  const std::vector<Scored> wanted = score_all(one);
  for (const Layout& layout : layouts()) {
    GoldenModel several(GetParam(), on(layout));
    EXPECT_LT(mean_difference(score_all(several), wanted), rounded_tolerance_of(GetParam()))
        << layout.ranks << " ranks, " << layout.groups << " groups";
  }
}

TEST_P(ShardedRounded, IsCloseToOneRankInBf16) {
  GoldenModel one(GetParam(), on({}, {.exact = false}));
  const std::vector<Scored> wanted = score_all(one);
  GoldenModel several(GetParam(), on({3}, {.exact = false}));
  EXPECT_LT(mean_difference(score_all(several), wanted), 5e-3 + rounded_tolerance_of(GetParam()));
}

TEST_P(ShardedRounded, ARunRepeatsBitForBitInStepsOfAnySize) {
  const bool has_experts = GoldenModel(GetParam(), on({})).model().config().has_experts();
  for (const Layout& layout : {Layout{3}, Layout{4, has_experts ? 2 : 1}}) {
    std::vector<std::vector<Scored>> runs;
    for (const std::int64_t rows : {64, 7}) {
      GoldenModel golden(GetParam(), on(layout, {.max_rows = rows}));
      runs.push_back(score_all(golden));
    }
    for (std::size_t c = 0; c < runs[0].size(); ++c)
      for (std::size_t i = 0; i < runs[0][c].results.size(); ++i)
        EXPECT_EQ(runs[1][c].results[i].token_logprobs, runs[0][c].results[i].token_logprobs)
            << runs[0][c].name << ", " << layout.ranks << " ranks";
  }
}

// An adapter beside the base changes no bit of it.
TEST_P(ShardedRounded, BaseRowsAreTheirOwnBesideAdapters) {
  GoldenModel golden(GetParam(), on({2}));
  const std::vector<runner::ScoreLine> lines = rounded_lines_of(golden);
  const auto mixed = golden.score(lines, mixes_of(golden, lines));
  const auto base = golden.score(lines, std::vector<lora::Mix>(lines.size()));
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].adapters.empty()) {
      EXPECT_EQ(mixed[i].token_logprobs, base[i].token_logprobs) << "line " << i;
    } else {
      EXPECT_NE(mixed[i].token_logprobs, base[i].token_logprobs) << "line " << i;
    }
  }
}

}  // namespace
}  // namespace motley::score_tests
