#include "plan/plan.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"

namespace motley::plan {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

struct Case {
  int experts = 1;
  int experts_per_token = 1;
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> labels;

  std::size_t pairs() const { return ids.size(); }
  bool routed(std::size_t pair) const { return ids[pair] >= 0 && ids[pair] < experts; }
  std::int32_t label(std::size_t pair) const {
    return labels[pair / static_cast<std::size_t>(experts_per_token)];
  }
};

// The expected plan, from its definition: the pairs sorted by one comparison.
void expect_plan_of(const Plan& plan, const Case& layer) {
  const std::size_t pairs = layer.pairs();
  ASSERT_EQ(plan.pairs(), static_cast<std::int64_t>(pairs));
  std::vector<std::int32_t> expected(pairs);
  std::iota(expected.begin(), expected.end(), 0);
  const auto key = [&](std::int32_t pair) {
    const auto at = static_cast<std::size_t>(pair);
    const std::int32_t expert = layer.routed(at) ? layer.ids[at] : layer.experts;
    return std::tuple(expert, layer.label(at), pair);
  };
  std::sort(expected.begin(), expected.end(),
            [&](std::int32_t a, std::int32_t b) { return key(a) < key(b); });
  ASSERT_TRUE(std::ranges::equal(plan.order(), expected));

  ASSERT_EQ(plan.tokens_in_order().size(), pairs);
  ASSERT_EQ(plan.places().size(), pairs);
  for (std::size_t place = 0; place < pairs; ++place) {
    const std::int32_t pair = expected[place];
    ASSERT_EQ(plan.tokens_in_order()[place], pair / layer.experts_per_token);
    ASSERT_EQ(plan.places()[static_cast<std::size_t>(pair)], static_cast<std::int32_t>(place));
  }

  const auto begin = plan.expert_begin();
  ASSERT_EQ(begin.size(), static_cast<std::size_t>(layer.experts) + 1);
  std::size_t place = 0;
  for (std::int32_t expert = 0; expert < layer.experts; ++expert) {
    ASSERT_EQ(begin[static_cast<std::size_t>(expert)], static_cast<std::int32_t>(place));
    while (place < pairs && std::get<0>(key(expected[place])) == expert) ++place;
  }
  ASSERT_EQ(begin.back(), static_cast<std::int32_t>(place));
  ASSERT_EQ(plan.routed_pairs(), static_cast<std::int64_t>(place));

  // Segments cover the routed pairs without gaps, each as long as possible.
  std::int32_t at = 0;
  for (const Segment& segment : plan.segments()) {
    ASSERT_EQ(segment.begin, at);
    ASSERT_LT(segment.begin, segment.end);
    for (std::int32_t inside = segment.begin; inside < segment.end; ++inside) {
      const auto pair = static_cast<std::size_t>(expected[static_cast<std::size_t>(inside)]);
      ASSERT_EQ(layer.ids[pair], segment.expert);
      ASSERT_EQ(layer.label(pair), segment.label);
    }
    at = segment.end;
  }
  ASSERT_EQ(at, plan.routed_pairs());
  for (std::size_t i = 1; i < plan.segments().size(); ++i) {
    const Segment& a = plan.segments()[i - 1];
    const Segment& b = plan.segments()[i];
    ASSERT_LT(std::tuple(a.expert, a.label), std::tuple(b.expert, b.label));
  }

  const auto segment_begin = plan.segment_begin();
  ASSERT_EQ(segment_begin.size(), static_cast<std::size_t>(layer.experts) + 1);
  ASSERT_EQ(segment_begin.front(), 0);
  ASSERT_EQ(segment_begin.back(), static_cast<std::int32_t>(plan.segments().size()));
  for (std::int32_t expert = 0; expert < layer.experts; ++expert) {
    const auto e = static_cast<std::size_t>(expert);
    for (std::int32_t i = segment_begin[e]; i < segment_begin[e + 1]; ++i)
      ASSERT_EQ(plan.segments()[static_cast<std::size_t>(i)].expert, expert);
  }
}

void expect_plan_of(const Case& layer) {
  Plan plan(static_cast<std::int64_t>(layer.labels.size()), layer.experts_per_token, layer.experts);
  plan.build(layer.ids, layer.labels);
  expect_plan_of(plan, layer);
}

class Dice {
 public:
  explicit Dice(unsigned seed) : random_(seed) {}
  int between(int low, int high) { return std::uniform_int_distribution(low, high)(random_); }
  bool one_in(int n) { return between(1, n) == 1; }

 private:
  std::mt19937 random_;
};

Case random_case(Dice& dice, int max_tokens, int experts, int experts_per_token) {
  Case layer{.experts = experts, .experts_per_token = experts_per_token, .ids = {}, .labels = {}};
  const int tokens = dice.between(0, max_tokens);
  const int labels = dice.one_in(3) ? 0 : dice.between(1, 40);
  const bool strange_ids = dice.one_in(2);
  // Sometimes all pairs are on few experts.
  const int used = dice.one_in(3) ? std::min(2, experts) : experts;
  for (int token = 0; token < tokens; ++token) {
    layer.labels.push_back(dice.between(-1, labels - 1));
    for (int slot = 0; slot < experts_per_token; ++slot) {
      std::int32_t id = dice.between(0, used - 1);
      if (strange_ids && dice.one_in(6)) {
        const std::int32_t strange[] = {-1,
                                        -7,
                                        experts,
                                        experts + 3,
                                        std::numeric_limits<std::int32_t>::min(),
                                        std::numeric_limits<std::int32_t>::max()};
        id = strange[dice.between(0, 5)];
      }
      layer.ids.push_back(id);
    }
  }
  return layer;
}

TEST(Plan, HoldsEveryPairOnceInOrderForRandomLayers) {
  Dice dice(1);
  for (int round = 0; round < 400; ++round) {
    const int experts = dice.one_in(8) ? 512 : dice.between(1, 130);
    const Case layer = random_case(dice, 70, experts, dice.between(1, 10));
    SCOPED_TRACE(cat("round ", round));
    expect_plan_of(layer);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(Plan, IsTheSameWhateverWasBuiltBefore) {
  Dice dice(2);
  Plan plan(64, 4, 20);
  for (int round = 0; round < 100; ++round) {
    const Case layer = random_case(dice, 64, 20, 4);
    plan.build(layer.ids, layer.labels);
    SCOPED_TRACE(cat("round ", round));
    expect_plan_of(plan, layer);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(Plan, OfNoTokensIsEmpty) {
  Plan plan(8, 2, 3);
  const auto expect_empty = [&] {
    EXPECT_EQ(plan.pairs(), 0);
    EXPECT_EQ(plan.routed_pairs(), 0);
    EXPECT_THAT(plan.order(), IsEmpty());
    EXPECT_THAT(plan.segments(), IsEmpty());
    EXPECT_THAT(plan.expert_begin(), ElementsAre(0, 0, 0, 0));
    EXPECT_THAT(plan.segment_begin(), ElementsAre(0, 0, 0, 0));
  };
  expect_empty();
  plan.build(std::vector{0, 1, 2, 0}, std::vector{no_label, 3});
  EXPECT_EQ(plan.routed_pairs(), 4);
  plan.build({}, {});
  expect_empty();
}

TEST(Plan, SortsByExpertThenLabelThenToken) {
  Plan plan(4, 2, 3);
  plan.build(std::vector{2, 0, 2, 0, 0, 2, 2, 1}, std::vector{5, no_label, 5, 0});
  EXPECT_THAT(plan.order(), ElementsAre(3, 1, 4, 7, 2, 6, 0, 5));
  EXPECT_THAT(plan.tokens_in_order(), ElementsAre(1, 0, 2, 3, 1, 3, 0, 2));
  EXPECT_THAT(plan.segments(),
              ElementsAre(Segment{0, no_label, 0, 1}, Segment{0, 5, 1, 3}, Segment{1, 0, 3, 4},
                          Segment{2, no_label, 4, 5}, Segment{2, 0, 5, 6}, Segment{2, 5, 6, 8}));
  EXPECT_THAT(plan.segment_begin(), ElementsAre(0, 2, 3, 6));
}

TEST(Plan, PutsIdsWithoutExpertBehindAll) {
  Plan plan(3, 2, 4);
  plan.build(std::vector{-1, 3, 4, 0, 3, 1 << 30}, std::vector{1, 0, no_label});
  EXPECT_EQ(plan.routed_pairs(), 3);
  EXPECT_THAT(plan.order().first(3), ElementsAre(3, 4, 1));
  EXPECT_THAT(plan.order().last(3), ElementsAre(5, 2, 0));
  EXPECT_THAT(plan.segments(),
              ElementsAre(Segment{0, 0, 0, 1}, Segment{3, no_label, 1, 2}, Segment{3, 1, 2, 3}));
}

TEST(Plan, TakesOneHotExpertOf512) {
  Case layer{.experts = 512, .experts_per_token = 1, .ids = {}, .labels = {}};
  for (int token = 0; token < 1000; ++token) {
    layer.ids.push_back(511);
    layer.labels.push_back(token % 300 - 1);
  }
  expect_plan_of(layer);
}

TEST(Plan, TakesATokenThatNamesAnExpertTwice) {
  const Case layer{
      .experts = 3, .experts_per_token = 3, .ids = {1, 1, 1, 0, 1, 0}, .labels = {2, 1}};
  expect_plan_of(layer);
}

TEST(Plan, TakesAsManyLabelsAsTokens) {
  Case layer{.experts = 8, .experts_per_token = 2, .ids = {}, .labels = {}};
  for (int token = 0; token < 500; ++token) {
    layer.ids.push_back(token % 8);
    layer.ids.push_back((token + 3) % 8);
    layer.labels.push_back(1'000'000'000 - token);
  }
  expect_plan_of(layer);
}

TEST(PlanDeathTest, RefusesMoreTokensThanItWasMadeFor) {
  Plan plan(1, 1, 2);
  EXPECT_DEATH(plan.build(std::vector{0, 1}, std::vector{0, 0}), "no more tokens");
  EXPECT_DEATH(plan.build(std::vector{0, 1}, std::vector{0}), "ids for each token");
  EXPECT_DEATH(plan.build(std::vector{0}, std::vector{-2}), "labels are no_label");
}

}  // namespace
}  // namespace motley::plan
