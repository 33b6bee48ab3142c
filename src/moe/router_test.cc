#include "moe/router.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/system/thread_pool.h"

namespace motley::moe {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();

struct Routed {
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
};

Routed route_all(const RouterSpec& spec, const std::vector<float>& logits,
                 const std::vector<float>& bias = {}) {
  static ThreadPool pool({.threads = 3});
  const auto tokens = static_cast<std::int64_t>(logits.size()) / spec.experts;
  const auto pairs = static_cast<std::size_t>(tokens * spec.top_k);
  Routed routed{std::vector<std::int32_t>(pairs, -99), std::vector<float>(pairs, nan)};
  const auto bytes = [](auto& numbers) { return reinterpret_cast<std::byte*>(numbers.data()); };
  const tensor::ConstTensor logits_view(reinterpret_cast<const std::byte*>(logits.data()),
                                        DType::f32, {tokens, spec.experts});
  route({.spec = spec,
         .logits = logits_view,
         .correction_bias = bias.empty() ? nullptr : bias.data(),
         .ids = {bytes(routed.ids), DType::i32, {tokens, spec.top_k}},
         .weights = {bytes(routed.weights), DType::f32, {tokens, spec.top_k}}},
        {.kernels = &kernels::cpu_table(), .stream = {&pool}});
  return routed;
}

// Experts by falling score; equal ones by rising id.
std::vector<std::size_t> by_score(const std::vector<double>& scores) {
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
    return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
  });
  return order;
}

std::vector<double> softmax(const std::vector<double>& logits) {
  const double largest = *std::ranges::max_element(logits);
  std::vector<double> p;
  for (const double logit : logits) p.push_back(std::exp(logit - largest));
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& one : p) one /= sum;
  return p;
}

// Scores, with those of dropped groups replaced by `masked`.
std::vector<double> keep_groups(const RouterSpec& spec, std::vector<double> scores,
                                std::size_t summed, double masked) {
  const std::size_t size = scores.size() / static_cast<std::size_t>(spec.groups);
  std::vector<double> group_scores;
  for (std::size_t begin = 0; begin < scores.size(); begin += size) {
    std::vector<double> group(scores.begin() + static_cast<std::ptrdiff_t>(begin),
                              scores.begin() + static_cast<std::ptrdiff_t>(begin + size));
    std::ranges::sort(group, std::greater<>());
    double sum = 0;
    for (std::size_t i = 0; i < std::min(summed, size); ++i) sum += group[i];
    group_scores.push_back(sum);
  }
  const auto order = by_score(group_scores);
  for (std::size_t place = static_cast<std::size_t>(spec.kept_groups); place < order.size();
       ++place) {
    for (std::size_t i = 0; i < size; ++i) scores[order[place] * size + i] = masked;
  }
  return scores;
}

// One row of each kind, by the formula of its model.
void define(const RouterSpec& spec, const std::vector<double>& logits,
            const std::vector<float>& bias, std::vector<std::size_t>& ids,
            std::vector<double>& weights) {
  const auto top_k = static_cast<std::size_t>(spec.top_k);
  const auto choose = [&](const std::vector<double>& scores, const std::vector<double>& p) {
    ids = by_score(scores);
    ids.resize(top_k);
    weights.clear();
    for (const std::size_t id : ids) weights.push_back(p[id]);
  };
  double floor = 0;
  switch (spec.kind) {
    case RouterKind::softmax_then_topk: {
      const auto p = softmax(logits);
      choose(p, p);
      break;
    }
    case RouterKind::topk_then_softmax:
      choose(logits, logits);
      weights = softmax(weights);
      break;
    case RouterKind::grouped_softmax: {
      const auto p = softmax(logits);
      choose(keep_groups(spec, p, 1, 0.0), p);
      floor = 1e-20;
      break;
    }
    case RouterKind::sigmoid_grouped: {
      std::vector<double> p;
      std::vector<double> c;
      for (std::size_t e = 0; e < logits.size(); ++e) {
        p.push_back(1 / (1 + std::exp(-logits[e])));
        c.push_back(p[e] + (bias.empty() ? 0.0 : static_cast<double>(bias[e])));
      }
      choose(keep_groups(spec, c, 2, -std::numeric_limits<double>::infinity()), p);
      floor = 1e-20;
      break;
    }
  }
  if (spec.renormalise && spec.kind != RouterKind::topk_then_softmax) {
    const double sum = std::accumulate(weights.begin(), weights.end(), floor);
    for (double& weight : weights) weight /= sum;
  }
  for (double& weight : weights) weight *= static_cast<double>(spec.scale);
}

// Logits on a grid of 1/64, so that float32 rounding cannot swap two experts: they are equal, or
// differ by far more than an ulp of any score.
void expect_as_defined(const RouterSpec& spec, bool with_bias, unsigned seed) {
  ASSERT_TRUE(validate(spec).ok());
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> steps(-200, 200);
  const int tokens = 41;
  std::vector<float> logits;
  for (int i = 0; i < tokens * spec.experts; ++i)
    logits.push_back(static_cast<float>(steps(random)) / 64.0F);
  std::vector<float> bias;
  if (with_bias)
    for (int e = 0; e < spec.experts; ++e)
      bias.push_back(static_cast<float>(steps(random)) / 256.0F - 0.5F);

  const Routed routed = route_all(spec, logits, bias);
  const auto experts = static_cast<std::size_t>(spec.experts);
  const auto top_k = static_cast<std::size_t>(spec.top_k);
  for (std::size_t token = 0; token < static_cast<std::size_t>(tokens); ++token) {
    std::vector<double> row(logits.begin() + static_cast<std::ptrdiff_t>(token * experts),
                            logits.begin() + static_cast<std::ptrdiff_t>((token + 1) * experts));
    std::vector<std::size_t> ids;
    std::vector<double> weights;
    define(spec, row, bias, ids, weights);
    for (std::size_t slot = 0; slot < top_k; ++slot) {
      const std::size_t at = token * top_k + slot;
      ASSERT_EQ(static_cast<std::size_t>(routed.ids[at]), ids[slot])
          << "token " << token << ", slot " << slot;
      // A sum of up to 512 float32 terms and two roundings.
      ASSERT_NEAR(static_cast<double>(routed.weights[at]), weights[slot], 4e-6 * weights[slot])
          << "token " << token << ", slot " << slot;
    }
  }
}

TEST(Router, SoftmaxThenTopKFollowsItsDefinition) {
  for (const bool renormalise : {false, true}) {
    RouterSpec spec{.kind = RouterKind::softmax_then_topk, .renormalise = renormalise};
    for (const auto& [experts, top_k] : {std::pair{128, 8}, {64, 8}, {8, 2}, {5, 5}, {512, 10}}) {
      spec.experts = experts;
      spec.top_k = top_k;
      SCOPED_TRACE(cat(experts, " experts, top ", top_k, ", renormalise ", renormalise));
      expect_as_defined(spec, false, 1);
    }
  }
}

TEST(Router, TopKThenSoftmaxFollowsItsDefinition) {
  for (const auto& [experts, top_k] : {std::pair{32, 4}, {128, 4}, {3, 1}}) {
    SCOPED_TRACE(cat(experts, " experts, top ", top_k));
    expect_as_defined({.kind = RouterKind::topk_then_softmax, .experts = experts, .top_k = top_k},
                      false, 2);
  }
}

TEST(Router, GroupedSoftmaxFollowsItsDefinition) {
  RouterSpec spec{.kind = RouterKind::grouped_softmax,
                  .experts = 160,
                  .top_k = 6,
                  .groups = 8,
                  .kept_groups = 3,
                  .scale = 16};
  expect_as_defined(spec, false, 3);
  spec.renormalise = true;
  expect_as_defined(spec, false, 4);
  // Greedy.
  expect_as_defined({.kind = RouterKind::grouped_softmax, .experts = 64, .top_k = 6, .scale = 1},
                    false, 5);
}

TEST(Router, SigmoidGroupedFollowsItsDefinition) {
  for (const bool renormalise : {false, true}) {
    for (const bool with_bias : {false, true}) {
      SCOPED_TRACE(cat("renormalise ", renormalise, ", bias ", with_bias));
      const RouterSpec v3{.kind = RouterKind::sigmoid_grouped,
                          .experts = 256,
                          .top_k = 8,
                          .groups = 8,
                          .kept_groups = 4,
                          .renormalise = renormalise,
                          .scale = 2.5};
      expect_as_defined(v3, with_bias, 6);
      RouterSpec one_group = v3;
      one_group.experts = 384;
      one_group.groups = one_group.kept_groups = 1;
      expect_as_defined(one_group, with_bias, 7);
    }
  }
}

TEST(Router, BiasChoosesButDoesNotWeigh) {
  const RouterSpec spec{.kind = RouterKind::sigmoid_grouped, .experts = 3, .top_k = 1};
  const Routed routed = route_all(spec, {2, 1, 0}, {-5, -5, 0});
  EXPECT_THAT(routed.ids, ElementsAre(2));
  EXPECT_THAT(routed.weights, ElementsAre(0.5F));
}

// With a mask of zeros, experts of dropped groups would beat kept ones of negative score.
TEST(Router, NegativeScoresOfKeptGroupsBeatDroppedGroups) {
  const RouterSpec spec{
      .kind = RouterKind::sigmoid_grouped, .experts = 4, .top_k = 2, .groups = 2, .kept_groups = 1};
  EXPECT_THAT(route_all(spec, {0, 0, 0, 0}, {-9, -9, -3, -4}).ids, ElementsAre(2, 3));
}

TEST(Router, EqualScoresGoToTheLowerId) {
  for (const RouterKind kind : {RouterKind::softmax_then_topk, RouterKind::topk_then_softmax,
                                RouterKind::grouped_softmax, RouterKind::sigmoid_grouped}) {
    const bool groups = kind == RouterKind::grouped_softmax || kind == RouterKind::sigmoid_grouped;
    const RouterSpec spec{.kind = kind,
                          .experts = 8,
                          .top_k = 3,
                          .groups = groups ? 4 : 1,
                          .kept_groups = groups ? 2 : 1};
    EXPECT_THAT(route_all(spec, std::vector<float>(8, 1.5F)).ids, ElementsAre(0, 1, 2));
    // -0 equals 0, and equal scores come in order of id.
    EXPECT_THAT(route_all(spec, {0.0F, -0.0F, 0.0F, -0.0F, -9, -9, -9, -9}).ids,
                ElementsAre(0, 1, 2));
  }
}

TEST(Router, StrangeLogitsNeverGiveAnIdThatIsNoExpertOrTwice) {
  const float strange[] = {nan, infinity, -infinity, 0, 3e38F, -3e38F, 1e-45F, -nan};
  std::mt19937 random(8);
  for (const RouterKind kind : {RouterKind::softmax_then_topk, RouterKind::topk_then_softmax,
                                RouterKind::grouped_softmax, RouterKind::sigmoid_grouped}) {
    const bool groups = kind == RouterKind::grouped_softmax || kind == RouterKind::sigmoid_grouped;
    const RouterSpec spec{.kind = kind,
                          .experts = 12,
                          .top_k = 6,
                          .groups = groups ? 3 : 1,
                          .kept_groups = groups ? 2 : 1,
                          .renormalise = true};
    const std::size_t tokens = 500;
    std::vector<float> logits;
    for (std::size_t i = 0; i < tokens * 12; ++i) {
      // The first row is all NaN, the second all -infinity.
      const std::size_t choice = i < 12 ? 0 : i < 24 ? 2 : random() % std::size(strange);
      logits.push_back(strange[choice]);
    }
    const Routed routed = route_all(spec, logits);
    for (std::size_t token = 0; token < tokens; ++token) {
      std::set<std::int32_t> seen;
      for (std::size_t slot = 0; slot < 6; ++slot) {
        const std::int32_t id = routed.ids[token * 6 + slot];
        ASSERT_GE(id, 0);
        ASSERT_LT(id, 12);
        ASSERT_TRUE(seen.insert(id).second) << "token " << token << " has " << id << " twice";
      }
    }
  }
}

TEST(Router, NanRanksLastAndShowsInTheWeights) {
  const RouterSpec spec{.kind = RouterKind::softmax_then_topk, .experts = 4, .top_k = 3};
  const Routed routed = route_all(spec, {nan, 1, 2, 3, 0, 0, 0, 0});
  EXPECT_THAT(routed.ids, ElementsAre(3, 2, 1, 0, 1, 2));
  EXPECT_TRUE(std::isnan(routed.weights[0]));
  EXPECT_EQ(routed.weights[3], 0.25F);
}

TEST(Router, RoutesNoTokens) { EXPECT_TRUE(route_all({.experts = 4, .top_k = 2}, {}).ids.empty()); }

TEST(Router, ARowDoesNotDependOnOthers) {
  const RouterSpec spec{.kind = RouterKind::sigmoid_grouped,
                        .experts = 16,
                        .top_k = 4,
                        .groups = 4,
                        .kept_groups = 2,
                        .renormalise = true,
                        .scale = 2.5};
  std::mt19937 random(9);
  std::normal_distribution<float> normal;
  std::vector<float> logits(std::size_t{16} * 200);
  for (float& logit : logits) logit = normal(random);
  const Routed all = route_all(spec, logits);
  for (std::ptrdiff_t token = 0; token < 200; ++token) {
    const auto row = logits.begin() + token * 16;
    const Routed alone = route_all(spec, {row, row + 16});
    for (std::size_t slot = 0; slot < 4; ++slot) {
      const std::size_t at = static_cast<std::size_t>(token) * 4 + slot;
      ASSERT_EQ(all.ids[at], alone.ids[slot]);
      ASSERT_EQ(all.weights[at], alone.weights[slot]);
    }
  }
}

TEST(Router, RefusesSpecsThatCannotRoute) {
  struct Bad {
    RouterSpec spec;
    std::string reason;
  };
  const RouterKind grouped = RouterKind::sigmoid_grouped;
  const Bad bad[] = {
      {{.experts = 0, .top_k = 1}, "0 experts"},
      {{.experts = 1025, .top_k = 1}, "1025 experts"},
      {{.experts = 4, .top_k = 0}, "0 experts per token"},
      {{.experts = 4, .top_k = 5}, "5 experts per token"},
      {{.experts = 100, .top_k = 65}, "65 experts per token"},
      {{.experts = 4, .top_k = 1, .scale = infinity}, "not finite"},
      {{.experts = 4, .top_k = 1, .groups = 2}, "groups, which its kind lacks"},
      {{.kind = grouped, .experts = 4, .top_k = 1, .groups = 0}, "kept groups"},
      {{.kind = grouped, .experts = 4, .top_k = 1, .groups = 2, .kept_groups = 3}, "3 kept groups"},
      {{.kind = grouped, .experts = 4, .top_k = 1, .groups = 3}, "3 equal groups"},
      {{.kind = grouped, .experts = 8, .top_k = 3, .groups = 4}, "out of 1 groups of 2"},
      {{.kind = grouped, .experts = 8, .top_k = 1, .groups = 8}, "no two best"},
  };
  for (const Bad& one : bad) {
    const auto result = validate(one.spec);
    ASSERT_FALSE(result.ok()) << one.reason;
    EXPECT_THAT(result.error().message(), HasSubstr(one.reason));
  }
}

}  // namespace
}  // namespace motley::moe
