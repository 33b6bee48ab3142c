// Several ranks against one, over the goldens.

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "dist/thread_ranks.h"
#include "lora/files/random_adapter.h"
#include "score/failing_rank.h"
#include "score/golden_model.h"
#include "score/sharded_scores.h"

namespace motley::score_tests {
namespace {

class Sharded : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Goldens, Sharded, testing::ValuesIn(plain_models()),
                         [](const auto& model) { return model.param; });

TEST_P(Sharded, EveryCaseIsAsOnOneRank) {
  GoldenModel one(GetParam(), {.threads = 1});
  const std::vector<Scored> wanted = score_all(one);
  std::vector<Layout> layouts = layouts_of(one, {{2}, {3}, {4}, {8}});
  if (one.model().config().has_experts()) layouts.push_back({8, 4});
  for (const Layout& layout : layouts) {
    GoldenModel several(GetParam(),
                        {.threads = 1, .ranks = layout.ranks, .expert_groups = layout.groups});
    expect_close(score_all(several), wanted, layout);
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

TEST(ShardedModel, ExpertsOnGroupsRepeatBitForBitInStepsOfAnySize) {
  std::vector<std::vector<Scored>> runs;
  for (const std::int64_t rows : {64, 7}) {
    GoldenModel golden("qwen2_moe",
                       {.threads = 1, .max_rows = rows, .ranks = 3, .expert_groups = 3});
    runs.push_back(score_all(golden));
  }
  for (std::size_t c = 0; c < runs[0].size(); ++c)
    for (std::size_t i = 0; i < runs[0][c].results.size(); ++i)
      EXPECT_EQ(runs[1][c].results[i].token_logprobs, runs[0][c].results[i].token_logprobs)
          << runs[0][c].name;
}

// Products with A, by all ranks or each by a part of them.
class ShardedShrinks : public testing::TestWithParam<std::string> {
 protected:
  struct Run {
    std::vector<Scored> scores;
    int gathered_parts = 0;  // by rank 0
  };
  static Run run(const Layout& layout, bool exact, std::int64_t from) {
    std::vector<std::unique_ptr<FailingRank>> made;
    GoldenModel golden(GetParam(), {.exact = exact,
                                    .threads = 1,
                                    .ranks = layout.ranks,
                                    .expert_groups = layout.groups,
                                    .shared_shrinks_from = from,
                                    .wrap = [&](auto& ranks) {
                                      made.push_back(std::make_unique<FailingRank>(
                                          ranks, std::numeric_limits<int>::max()));
                                      return made.back().get();
                                    }});
    std::vector<Scored> scores = score_all(golden);
    return {std::move(scores), made.front()->gathered_parts()};
  }
};
INSTANTIATE_TEST_SUITE_P(Goldens, ShardedShrinks, testing::ValuesIn(golden_models()),
                         [](const auto& model) { return model.param; });

TEST_P(ShardedShrinks, HaveTheSameBitsWhereRanksShareThem) {
  constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();
  const bool has_experts = GoldenModel(GetParam(), {.threads = 1}).model().config().has_experts();
  for (const Layout& layout : std::vector<Layout>{{2}, {3}, {4}, {4, 2}}) {
    if (layout.groups > 1 && !has_experts) continue;
    for (const bool exact : {true, false}) {
      if (!exact && layout.ranks > 2) continue;
      const Run own = run(layout, exact, never);
      const Run shared = run(layout, exact, 0);
      expect_same_bits(shared.scores, own.scores);
      EXPECT_EQ(own.gathered_parts, 0);
      // More ranks may have no heads, and groups of them other experts.
      if (layout.ranks == 2) {
        EXPECT_GT(shared.gathered_parts, 0);
      }
    }
  }
}

// Roundings to bf16 may fall otherwise where sums are added in another order.
TEST_P(Sharded, IsCloseToOneRankInBf16) {
  GoldenModel one(GetParam(), {.exact = false, .threads = 1});
  const std::vector<Scored> wanted = score_all(one);
  GoldenModel several(GetParam(), {.exact = false, .threads = 1, .ranks = 2});
  EXPECT_LT(mean_difference(score_all(several), wanted), 5e-3);
  if (!one.model().config().has_experts()) return;
  GoldenModel dealt(GetParam(), {.exact = false, .threads = 1, .ranks = 2, .expert_groups = 2});
  EXPECT_LT(mean_difference(score_all(dealt), wanted), 5e-3);
}

// Of all ranks.
std::int64_t query_rows(const model::Config& config) {
  const auto& attention = std::get<model::GroupedConfig>(config.mixers.front());
  return attention.heads * attention.head_dim;
}
std::int64_t query_rows(const model::Layer& layer) {
  return layer.mixer.block->maps().front().maps.front()->weight.out();
}

TEST(ShardedModel, RanksHoldPartsOfTheWeights) {
  GoldenModel golden("qwen3_moe", {.threads = 1, .ranks = 3});
  std::int64_t queries = 0;
  std::int64_t experts = 0;
  std::int64_t tokens = 0;
  for (int rank = 0; rank < 3; ++rank) {
    const model::Model& own = rank == 0 ? golden.model() : golden.others()->model(rank);
    queries += query_rows(own.layers().front());
    tokens += own.embedding().weight.out();
    model::for_each_moe(own.layers(), [&](const model::MoeBlock& block, std::size_t) {
      experts += block.experts->down[0].in();
    });
  }
  const model::Config& config = golden.model().config();
  EXPECT_EQ(queries, query_rows(config));
  EXPECT_EQ(tokens, config.vocabulary);
  EXPECT_EQ(experts, config.moe.intermediate * std::ranges::count(config.moe_layers, true));
}

TEST(ShardedModel, GroupsOfRanksHoldTheirExperts) {
  GoldenModel golden("qwen3_moe", {.threads = 1, .ranks = 4, .expert_groups = 2});
  const model::Config& config = golden.model().config();
  std::vector<int> holders(static_cast<std::size_t>(config.moe.router.experts));
  for (int rank = 0; rank < 4; ++rank) {
    const model::Model& own = rank == 0 ? golden.model() : golden.others()->model(rank);
    const model::Shard& shard = own.shard();
    const model::MoeBlock& block = *own.layers().front().feed_forward.block->moe_blocks().front();
    EXPECT_EQ(block.experts->experts, rank < 2 ? 3 : 2);
    EXPECT_EQ(block.experts->down[0].in(), config.moe.intermediate / 2);
    for (std::int64_t e = shard.experts.experts.begin; e < shard.experts.experts.end; ++e)
      ++holders[static_cast<std::size_t>(e)];
    EXPECT_EQ(query_rows(own.layers().front()), query_rows(config) / 4);
  }
  EXPECT_THAT(holders, testing::Each(2));
}

std::uint64_t pages_in_use(const lora::Pool& pool) {
  const lora::Pool::Usage usage = pool.usage();
  return usage.pages - usage.free_pages;
}

TEST(ShardedModel, AnAdapterOfOneGroupsExpertsIsAsOnOneRank) {
  GoldenModel one("qwen3_moe", {.threads = 1});
  GoldenModel several("qwen3_moe", {.threads = 1, .ranks = 2, .expert_groups = 2});
  const auto lines = one.lines_of(cases_of(one.golden()).front());
  const auto score = [&](GoldenModel& golden) {
    const lora::BaseView& base = golden.model().base_view();
    lora::Adapter adapter = lora::random_adapter(base, {.rank = 4, .seed = 3});
    std::erase_if(adapter.sites,
                  [](const auto& delta) { return !lora::is_expert(delta.site.projection); });
    for (lora::SiteDelta& delta : adapter.sites)
      for (std::size_t e = 0; e < delta.factors.size(); ++e)
        if (e != 4) delta.factors[e] = {};
    const lora::Handle handle = golden.pool().load("last", adapter).value();
    if (golden.others() != nullptr) {
      EXPECT_EQ(pages_in_use(golden.pool()), 0U);
      EXPECT_GT(pages_in_use(*handle->shard(1).pool()), 0U);
    }
    const lora::Mix mix = lora::Mix::make(std::array{lora::Mix::Part{handle, 4.0F}}).value();
    return std::vector<Scored>{{"adapted", golden.score(lines, std::vector(lines.size(), mix))},
                               {"base", golden.score(lines, std::vector<lora::Mix>(lines.size()))}};
  };
  const std::vector<Scored> wanted = score(one);
  EXPECT_GT(mean_difference({wanted[0]}, {wanted[1]}), 1e-3);
  expect_close(score(several), wanted, {2, 2});
}

TEST(ShardedModel, GroupsThatTheModelCantHaveAreRefusedByName) {
  const auto refusal = [](const char* model, const Layout& layout) {
    dist::ThreadRanks ranks({.ranks = layout.ranks});
    tensor::CpuDevice device({.threads = 1});
    const auto refused =
        model::Model::load(goldens_folder() / model, device,
                           {.ranks = &ranks.rank(0), .expert_groups = layout.groups});
    return refused.ok() ? std::string() : refused.error().message();
  };
  EXPECT_EQ(refusal("qwen3_moe", {6, 6}),
            "6 groups of ranks are more than the model's 5 experts (--ep): use at most 5");
  EXPECT_EQ(refusal("llama", {4, 2}),
            "the model has no experts to deal over 2 groups of ranks (--ep): leave it out; --tp 4 "
            "cuts the model over as many ranks");
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

// Weight-only formats, and the others with exact inputs. Heads of 20 numbers are no whole blocks of
// 16 or 32; in activation order every group has inputs of every rank.
class ShardedFormat : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Goldens, ShardedFormat, testing::ValuesIn(quantised_models()),
                         [](const auto& model) { return model.param; });

TEST_P(ShardedFormat, EveryCaseIsAsOnOneRank) {
  GoldenModel one(GetParam(), {.threads = 1});
  const std::vector<Scored> wanted = score_all(one);
  for (const Layout& layout : layouts_of(one, {{2}, {3}, {4}})) {
    GoldenModel several(GetParam(),
                        {.threads = 1, .ranks = layout.ranks, .expert_groups = layout.groups});
    expect_close(score_all(several), wanted, layout);
  }
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
