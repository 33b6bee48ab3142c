// Several ranks against one, over the goldens.

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "dist/thread_ranks.h"
#include "score/failing_rank.h"
#include "score/golden_model.h"
#include "score/sharded_scores.h"

namespace motley::score_tests {
namespace {

// Why a model can't be cut over so many ranks; empty if it can.
std::string why_refused(const std::string& model, int count) {
  dist::ThreadRanks ranks({.ranks = count});
  tensor::CpuDevice device({.threads = 1});
  for (int rank = 0; rank < count; ++rank) {
    const auto loaded = model::Model::load(goldens_folder() / model, device,
                                           {.exact_inputs = true, .ranks = &ranks.rank(rank)});
    if (!loaded.ok()) return loaded.error().message();
  }
  return "";
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
    expect_greedy_as_recorded(several);
  }
}

TEST_P(Sharded, ARunRepeatsBitForBitInStepsOfAnySize) {
  std::vector<std::vector<Scored>> runs;
  for (const std::int64_t rows : {64, 64, 7}) {
    GoldenModel golden(GetParam(), {.threads = rows == 7 ? 2 : 1, .max_rows = rows, .ranks = 3});
    runs.push_back(score_all(golden));
  }
  for (std::size_t run = 1; run < runs.size(); ++run)
    for (std::size_t c = 0; c < runs[0].size(); ++c)
      for (std::size_t i = 0; i < runs[0][c].results.size(); ++i) {
        EXPECT_EQ(runs[run][c].results[i].token_logprobs, runs[0][c].results[i].token_logprobs)
            << runs[0][c].name << ", run " << run;
      }
}

// Roundings to bf16 may fall otherwise where sums are added in another order.
TEST_P(Sharded, IsCloseToOneRankInBf16) {
  GoldenModel one(GetParam(), {.exact = false, .threads = 1});
  GoldenModel several(GetParam(), {.exact = false, .threads = 1, .ranks = 2});
  EXPECT_LT(mean_difference(score_all(several), score_all(one)), 5e-3);
}

TEST(ShardedModel, RanksHoldPartsOfTheWeights) {
  GoldenModel golden("qwen3_moe", {.threads = 1, .ranks = 3});
  std::int64_t queries = 0;
  std::int64_t experts = 0;
  std::int64_t tokens = 0;
  for (int rank = 0; rank < 3; ++rank) {
    const model::Model& own = rank == 0 ? golden.model() : golden.others()->model(rank);
    const model::Layer& layer = own.layers().front();
    queries += std::get<model::GroupedAttention>(layer.attention).q.weight.out();
    tokens += own.embedding().weight.out();
    for (const model::Layer& each : own.layers())
      if (const auto* const block = std::get_if<model::MoeBlock>(&each.ffn))
        experts += block->experts->down[0].in();
  }
  const model::Config& config = golden.model().config();
  EXPECT_EQ(queries, config.attention.heads * config.attention.head_dim);
  EXPECT_EQ(tokens, config.vocabulary);
  EXPECT_EQ(experts, config.moe.intermediate * std::ranges::count(config.moe_layers, true));
}

TEST(ShardedModel, ARankThatFailsInAStepEndsItWithItsLine) {
  for (const int faulty : {0, 2}) {
    std::vector<std::unique_ptr<FailingRank>> made;
    GoldenModel golden("qwen3_moe",
                       {.threads = 1, .ranks = 3, .wrap = [&](auto& ranks) {
                          made.push_back(std::make_unique<FailingRank>(
                              ranks, ranks.rank() == faulty ? 3 : std::numeric_limits<int>::max()));
                          return made.back().get();
                        }});
    const auto lines = golden.lines_of(cases_of(golden.golden()).front());
    const std::vector<lora::Mix> mixes(lines.size());
    for (int step = 0; step < 2; ++step) {
      const auto result = runner::score(golden.runner(), lines, mixes, {});
      ASSERT_FALSE(result.ok());
      EXPECT_EQ(result.error().message(), cat("the device is gone (rank ", faulty, ")"));
    }
  }
}

// Weight-only formats, and the others with exact inputs: by the numbers of ranks that their blocks
// can be cut over.
class ShardedFormat : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Goldens, ShardedFormat, testing::ValuesIn(quantised_models()),
                         [](const auto& model) { return model.param; });

TEST_P(ShardedFormat, EveryCaseIsAsOnOneRank) {
  GoldenModel one(GetParam(), {.threads = 1});
  const std::vector<Scored> wanted = score_all(one);
  int refused = 0;
  for (const int ranks : {2, 3, 4}) {
    if (const std::string reason = why_refused(GetParam(), ranks); !reason.empty()) {
      EXPECT_THAT(reason, testing::HasSubstr("can't be cut over ranks"));
      ++refused;
      continue;
    }
    GoldenModel several(GetParam(), {.threads = 1, .ranks = ranks});
    expect_close(score_all(several), wanted, ranks);
  }
  // Heads of 20 numbers are no whole blocks of 16 or 32, and activation order can't be cut so far.
  const std::set<std::string> never{"glm4_moe_mxfp4", "mixtral_gptq_desc_act",
                                    "mixtral_w4a16_actorder", "qwen3_moe_nvfp4"};
  EXPECT_EQ(refused == 3, never.contains(GetParam())) << refused;
}

// A norm of a whole row (DoRA) needs it on every rank.
TEST(ShardedModel, AdaptersSeeWholeWeights) {
  for (const char* const name : {"qwen3_moe", "qwen3_moe_w4a16"}) {
    GoldenModel one(name, {.threads = 1});
    GoldenModel several(name, {.threads = 1, .ranks = 2});
    const lora::BaseView& whole = one.model().base_view();
    const lora::BaseView& cut = several.model().base_view();
    for (const lora::SiteSpec& site : whole.sites()) {
      if (site.experts > 0 || site.site.projection == lora::Projection::embed) continue;
      std::vector<float> wanted(static_cast<std::size_t>(site.in * site.out));
      std::vector<float> got(wanted.size());
      whole.rows(site.site, 0, 0, site.out, wanted.data());
      cut.rows(site.site, 0, 0, site.out / 2, got.data());
      cut.rows(site.site, 0, site.out / 2, site.out, got.data() + site.out / 2 * site.in);
      EXPECT_EQ(got, wanted) << lora::to_string(site.site);
    }
  }
}

// Scales of rows that ranks share are not theirs to know.
TEST(ShardedModel, ActivationsRoundedByWholeRowsAreRefusedByName) {
  dist::ThreadRanks ranks({.ranks = 2});
  tensor::CpuDevice device({.threads = 1});
  const auto refused =
      model::Model::load(goldens_folder() / "qwen3_moe_w8a8", device, {.ranks = &ranks.rank(0)});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::unsupported);
  EXPECT_THAT(refused.error().message(),
              testing::AllOf(testing::HasSubstr("inputs are rounded by whole rows"),
                             testing::EndsWith(": use --activations exact")));
}

TEST(ShardedModel, ActivationsWithTheFilesScalesAreCut) {
  GoldenModel one("llama_fp8_static", {.exact_inputs = false, .threads = 1});
  GoldenModel several("llama_fp8_static", {.exact_inputs = false, .threads = 1, .ranks = 2});
  // A code may differ by one where its number is on the edge.
  EXPECT_LT(mean_difference(score_all(several), score_all(one)), 2e-3);
}

TEST(ShardedModel, MoreRanksThanColumnsAreRefused) {
  dist::ThreadRanks ranks({.ranks = 49});
  tensor::CpuDevice device({.threads = 1});
  const auto refused =
      model::Model::load(goldens_folder() / "qwen3_moe", device, {.ranks = &ranks.rank(0)});
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message(), testing::HasSubstr("expert intermediate size of 48"));
}

}  // namespace
}  // namespace motley::score_tests
