// Temperature and the filters: which tokens are drawn, and how often.

#include <algorithm>
#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "kernels/sampling_arithmetic.h"
#include "sampling/draws.h"

namespace motley::sampling_tests {
namespace {

using engine::SamplingParams;
using testing::ElementsAre;

constexpr float infinity = std::numeric_limits<float>::infinity();

// Logits of these probabilities.
std::vector<float> logits_of(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double probability : probabilities)
    logits.push_back(static_cast<float>(std::log(probability)));
  return logits;
}

std::vector<std::int32_t> tokens_below(std::int32_t end) {
  std::vector<std::int32_t> tokens;
  for (std::int32_t token = 0; token < end; ++token) tokens.push_back(token);
  return tokens;
}

TEST(SamplingFilters, TemperatureScalesTheDistribution) {
  for (const float temperature : {0.2F, 0.7F, 1.0F, 1.7F, 2.0F}) {
    SCOPED_TRACE(cat("temperature ", temperature));
    expect_draws(random_logits(77, 11), {.params = {.temperature = temperature}});
  }
}

TEST(SamplingFilters, TopKKeepsThatMany) {
  for (const std::int32_t top_k : {2, 7, 31, 76, 77, 200}) {
    SCOPED_TRACE(cat("top_k ", top_k));
    expect_draws(random_logits(77, 12, 1), {.params = {.top_k = top_k}});
  }
}

TEST(SamplingFilters, TopPKeepsThatShare) {
  for (const float top_p : {0.1F, 0.5F, 0.8F, 0.95F, 0.999F}) {
    SCOPED_TRACE(cat("top_p ", top_p));
    expect_draws(random_logits(77, 13, 1), {.params = {.top_p = top_p}});
  }
}

TEST(SamplingFilters, MinPKeepsWhatIsNearTheLikeliest) {
  for (const float min_p : {0.01F, 0.1F, 0.3F, 0.9F}) {
    SCOPED_TRACE(cat("min_p ", min_p));
    expect_draws(random_logits(77, 14, 1), {.params = {.min_p = min_p}});
  }
}

TEST(SamplingFilters, WorkTogether) {
  const SamplingParams settings[] = {
      {.temperature = 1.3F, .top_k = 40, .top_p = 0.9F},
      {.temperature = 0.6F, .top_k = 20, .min_p = 0.02F},
      {.temperature = 1.5F, .top_p = 0.8F, .min_p = 0.1F},
      {.temperature = 2.0F, .top_k = 50, .top_p = 0.7F, .min_p = 0.05F},
  };
  for (const SamplingParams& params : settings) {
    SCOPED_TRACE(cat("temperature ", params.temperature, ", top_k ", params.top_k));
    expect_draws(random_logits(77, 15), {.params = params});
  }
}

TEST(SamplingFilters, DrawFromWideRows) {
  const std::vector<float> logits = random_logits(5'003, 16, 3);
  for (const SamplingParams& params :
       {SamplingParams{.temperature = 1}, SamplingParams{.temperature = 0.8F, .top_k = 1000},
        SamplingParams{.temperature = 1.2F, .top_p = 0.9F, .min_p = 0.001F}}) {
    SCOPED_TRACE(cat("temperature ", params.temperature));
    expect_draws(logits, {.params = params}, 4096);
  }
}

// Of two orders that keep different tokens, it is the documented one.
TEST(SamplingFilters, KeepTheirOrder) {
  const std::vector<float> logits = logits_of({0.4, 0.3, 0.2, 0.1});
  // After top_k the first token has 0.57 of what is left, and 0.4 of everything.
  EXPECT_THAT(drawn_tokens(logits, {.params = {.top_k = 2, .top_p = 0.5F}}), ElementsAre(0));
  EXPECT_THAT(drawn_tokens(logits, {.params = {.top_p = 0.5F}}), ElementsAre(0, 1));
  EXPECT_THAT(drawn_tokens(logits, {.params = {.top_p = 0.5F, .min_p = 0.7F}}), ElementsAre(0));
  // At temperature 2 the shares are square roots: 1, 0.87, 0.71, 0.5.
  EXPECT_THAT(drawn_tokens(logits, {.params = {.temperature = 2, .min_p = 0.6F}}),
              ElementsAre(0, 1, 2));
  EXPECT_THAT(drawn_tokens(logits, {.params = {.min_p = 0.6F}}), ElementsAre(0, 1));
  // And 0.33 of everything is what the first one has there.
  EXPECT_THAT(drawn_tokens(logits, {.params = {.temperature = 2, .top_p = 0.35F}}),
              ElementsAre(0, 1));
  EXPECT_THAT(drawn_tokens(logits, {.params = {.top_p = 0.35F}}), ElementsAre(0));
}

// Four equal tokens have a quarter each, exactly.
TEST(SamplingFilters, TopPAtAnEdgeStopsThere) {
  const std::vector<float> logits(4, 1.5F);
  const auto tokens = [&](float top_p) {
    return drawn_tokens(logits, {.params = {.top_p = top_p}});
  };
  EXPECT_EQ(tokens(0.25F), tokens_below(1));
  EXPECT_EQ(tokens(std::nextafter(0.25F, 1.0F)), tokens_below(2));
  EXPECT_EQ(tokens(0.5F), tokens_below(2));
  EXPECT_EQ(tokens(std::nextafter(0.5F, 1.0F)), tokens_below(3));
  EXPECT_EQ(tokens(0.75F), tokens_below(3));
  EXPECT_EQ(tokens(std::nextafter(0.75F, 1.0F)), tokens_below(4));
  EXPECT_EQ(tokens(1.0F), tokens_below(4));
}

TEST(SamplingFilters, TopPCutsEqualTokensByTheirIds) {
  std::vector<float> logits(64, 0.0F);
  EXPECT_EQ(drawn_tokens(logits, {.params = {.top_p = 0.125F}}), tokens_below(8));
  EXPECT_EQ(drawn_tokens(logits, {.params = {.top_p = 1e-9F}}), tokens_below(1));
  logits[9] = logits[40] = 1;
  EXPECT_THAT(drawn_tokens(logits, {.params = {.top_p = 1e-9F}}), ElementsAre(9));
}

TEST(SamplingFilters, TopKCutsEqualTokensByTheirIds) {
  std::vector<float> logits(77, 1.0F);
  EXPECT_EQ(drawn_tokens(logits, {.params = {.top_k = 5}}), tokens_below(5));
  logits[40] = 1.5F;
  EXPECT_THAT(drawn_tokens(logits, {.params = {.top_k = 5}}), ElementsAre(0, 1, 2, 3, 40));
  logits[0] = -1;
  EXPECT_THAT(drawn_tokens(logits, {.params = {.top_k = 5}}), ElementsAre(1, 2, 3, 4, 40));
  EXPECT_EQ(drawn_tokens(logits, {.params = {.top_k = 1}}), std::vector<std::int32_t>{40});
}

TEST(SamplingFilters, MinPKeepsWhatIsEqualToIt) {
  const std::vector<float> logits = {2, 0.5F, 0.5F, 0.25F};
  const float share = kernels::sampling::share_of(0.5F, 2, 1);
  EXPECT_NEAR(share, std::exp(-1.5), 1e-6);
  EXPECT_THAT(drawn_tokens(logits, {.params = {.min_p = share}}), ElementsAre(0, 1, 2));
  EXPECT_THAT(drawn_tokens(logits, {.params = {.min_p = std::nextafter(share, 1.0F)}}),
              ElementsAre(0));
  EXPECT_THAT(drawn_tokens({1, 3, 2.999F, 3}, {.params = {.min_p = 1}}), ElementsAre(1, 3));
}

TEST(SamplingFilters, WithoutTemperatureTheLikeliestIsTaken) {
  const auto greedy = [](const std::vector<float>& logits, const SamplingParams& params) {
    return drawn_tokens(logits, {.params = params}, 64);
  };
  for (const float temperature : {0.0F, 9e-6F}) {
    const SamplingParams params{.temperature = temperature, .top_k = 3, .top_p = 0.5F};
    EXPECT_THAT(greedy({1, 3, 2, 3}, params), ElementsAre(1)) << "the lower id among equals";
    EXPECT_THAT(greedy({-1, -0.0F, 0.0F}, params), ElementsAre(1));
    EXPECT_THAT(greedy({-infinity, -infinity, -7, -7}, params), ElementsAre(2));
  }
  // The least temperature that draws: equal tokens share, others are never drawn.
  EXPECT_THAT(drawn_tokens({1, 3, 2, 3}, {.params = {.temperature = 1e-5F}}), ElementsAre(1, 3));
}

TEST(SamplingFilters, MinusInfinityIsNeverDrawn) {
  std::vector<float> logits = random_logits(77, 17, 1);
  for (std::size_t i = 0; i < logits.size(); i += 3) logits[i] = -infinity;
  for (const SamplingParams& params :
       {SamplingParams{.temperature = 2}, SamplingParams{.top_k = 70},
        SamplingParams{.top_p = 0.999F}, SamplingParams{.min_p = 1e-9F}}) {
    SCOPED_TRACE(cat("top_k ", params.top_k, ", top_p ", params.top_p));
    expect_draws(logits, {.params = params});
  }
}

TEST(SamplingFilters, LogitsThatAreNotFiniteAreReported) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  for (const SamplingParams& params :
       {SamplingParams{.temperature = 0}, SamplingParams{.temperature = 2},
        SamplingParams{.top_k = 3}, SamplingParams{.logit_bias = {{.token = 5, .bias = -infinity}}},
        SamplingParams{.frequency_penalty = 1}}) {
    for (const float odd : {nan, infinity}) {
      std::vector<float> logits = random_logits(5000, 18, 1);
      logits[4321] = odd;
      engine::SamplingState state = state_in({.params = params}, 1);
      engine::SamplingState* const states[] = {&state};
      EXPECT_THAT(Draws(logits).step(states), ElementsAre(kernels::logits_not_finite));
    }
    engine::SamplingState state = state_in({.params = params}, 1);
    engine::SamplingState* const states[] = {&state};
    EXPECT_THAT(Draws(std::vector<float>(5000, -infinity)).step(states),
                ElementsAre(kernels::logits_not_finite));
  }
}

TEST(SamplingFilters, OneTokenThatIsLeftIsDrawn) {
  const std::vector<float> logits = {-infinity, -infinity, -30, -infinity};
  for (const SamplingParams& params :
       {SamplingParams{.temperature = 0}, SamplingParams{.temperature = 2},
        SamplingParams{.top_k = 3}, SamplingParams{.top_p = 0.5F}, SamplingParams{.min_p = 1}})
    EXPECT_THAT(drawn_tokens(logits, {.params = params}), ElementsAre(2));
}

// Tokens less probable than 2^-43 of the likeliest one are never drawn.
TEST(SamplingFilters, KeepFarApartLogitsApart) {
  EXPECT_THAT(drawn_tokens({0, 100, 99, -3e38F, 60}, {}), ElementsAre(1, 2));
  EXPECT_THAT(drawn_tokens({0, 1e38F, 3e38F}, {.params = {.top_p = 0.9F}}), ElementsAre(2));
}

}  // namespace
}  // namespace motley::sampling_tests
