// Which random numbers draws take: the same for the same seed, independent for all others.

#include <map>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "engine/sampling/sampler_maker.h"
#include "sampling/draws.h"

namespace motley::sampling_tests {
namespace {

using engine::SamplingState;

constexpr std::int32_t kinds = 8;

// Eight tokens of equal probability: what is drawn are three bits of the random number.
std::vector<float> equal_logits() { return std::vector<float>(kinds, 0.5F); }

// So many tokens in a row of each state, which are Draws::rows or fewer: [state][draw].
std::vector<std::vector<std::int32_t>> rows_of_draws(Draws& draws,
                                                     std::span<SamplingState* const> states,
                                                     int count) {
  std::vector<std::vector<std::int32_t>> tokens(states.size());
  for (int i = 0; i < count; ++i) {
    const std::vector<std::int32_t> step = draws.step(states);
    for (std::size_t at = 0; at < states.size(); ++at) tokens[at].push_back(step[at]);
  }
  return tokens;
}

std::vector<SamplingState*> pointers(std::vector<SamplingState>& states) {
  std::vector<SamplingState*> all;
  for (SamplingState& state : states) all.push_back(&state);
  return all;
}

// Whether pairs of tokens are as likely as each other: p of a chi-square over all kinds of pairs.
class Pairs {
 public:
  void add(std::int32_t first, std::int32_t second) {
    const std::int32_t pair = first * kinds + second;
    ++seen_[static_cast<std::size_t>(pair)];
  }
  double p() const {
    return chi_square_p(std::vector<double>(seen_.size(), 1.0 / (kinds * kinds)), seen_);
  }

 private:
  std::vector<int> seen_ = std::vector<int>(kinds * kinds, 0);
};

TEST(SamplingSeeds, TheSameSeedDrawsTheSameTokensInAnyRow) {
  const std::vector<float> logits = random_logits(77, 51);
  Draws draws(logits);
  const Setting setting{.params = {.temperature = 1.5F, .top_p = 0.95F}};
  std::vector<SamplingState> alone;
  alone.push_back(state_in(setting, 99));
  const auto wanted = rows_of_draws(draws, pointers(alone), 30)[0];
  EXPECT_GT(std::set(wanted.begin(), wanted.end()).size(), 5U);
  std::vector<SamplingState> states;
  for (std::uint64_t row = 0; row < 40; ++row)
    states.push_back(state_in(setting, row % 10 == 3 ? 99 : row));
  const auto found = rows_of_draws(draws, pointers(states), 30);
  for (std::size_t row = 0; row < found.size(); ++row)
    EXPECT_EQ(found[row] == wanted, row % 10 == 3) << "row " << row;
}

TEST(SamplingSeeds, DrawsOfOneSequenceFollowTheDistribution) {
  const std::vector<float> logits = random_logits(77, 52);
  const Setting setting{.params = {.temperature = 1.2F, .top_k = 40}};
  Draws draws(logits);
  std::vector<SamplingState> states;
  states.push_back(state_in(setting, 7));
  std::vector<int> seen(logits.size(), 0);
  const std::vector<std::int32_t> tokens = rows_of_draws(draws, pointers(states), 20'000)[0];
  for (const std::int32_t token : tokens) ++seen[static_cast<std::size_t>(token)];
  EXPECT_GE(chi_square_p(expected_probabilities(logits, setting), seen), least_p);
}

TEST(SamplingSeeds, DrawsOfOneSequenceAreIndependent) {
  Draws draws(equal_logits());
  std::vector<SamplingState> states;
  states.push_back(state_in({}, 8));
  const std::vector<std::int32_t> tokens = rows_of_draws(draws, pointers(states), 20'000)[0];
  for (const std::size_t lag : {1U, 2U, 5U}) {
    Pairs pairs;
    for (std::size_t i = lag; i < tokens.size(); ++i) pairs.add(tokens[i - lag], tokens[i]);
    EXPECT_GE(pairs.p(), least_p) << "lag " << lag;
  }
}

// Seeds side by side, and seeds that differ in one bit.
TEST(SamplingSeeds, SequencesOfDifferentSeedsAreIndependent) {
  Draws draws(equal_logits());
  for (const std::uint64_t step : {std::uint64_t{1}, std::uint64_t{1} << 32}) {
    SCOPED_TRACE(cat("seeds ", step, " apart"));
    std::vector<SamplingState> states;
    for (std::uint64_t i = 0; i < Draws::rows; ++i) states.push_back(state_in({}, i * step));
    const auto tokens = rows_of_draws(draws, pointers(states), 40);
    Pairs neighbours;
    Pairs shifted;  // draw i of one seed, draw i + 1 of the next
    for (std::size_t row = 1; row < tokens.size(); ++row) {
      for (std::size_t i = 0; i < tokens[row].size(); ++i) {
        neighbours.add(tokens[row - 1][i], tokens[row][i]);
        if (i > 0) shifted.add(tokens[row - 1][i - 1], tokens[row][i]);
      }
    }
    EXPECT_GE(neighbours.p(), least_p);
    EXPECT_GE(shifted.p(), least_p);
  }
}

TEST(SamplingSeeds, ChoicesOfOneRequestAreIndependent) {
  Draws draws(equal_logits());
  Pairs siblings;
  Pairs cousins;  // the same choice of requests whose seeds are side by side
  std::vector<std::int32_t> before;
  for (std::uint64_t seed = 0; seed < 64; ++seed) {
    const SamplingState first = state_in({}, seed);
    std::vector<std::unique_ptr<engine::Sampler>> forked;
    std::vector<SamplingState*> choices;
    for (int choice = 0; choice < 128; ++choice) {
      forked.push_back(first.fork(choice));
      choices.push_back(static_cast<SamplingState*>(forked.back().get()));
    }
    const auto tokens = rows_of_draws(draws, choices, 2);
    std::vector<std::int32_t> now;
    for (std::size_t choice = 0; choice < tokens.size(); ++choice) {
      for (std::size_t i = 0; i < 2; ++i) {
        if (choice > 0) siblings.add(tokens[choice - 1][i], tokens[choice][i]);
        now.push_back(tokens[choice][i]);
        if (seed > 0) cousins.add(before[now.size() - 1], now.back());
      }
    }
    before = now;
  }
  EXPECT_GE(siblings.p(), least_p);
  EXPECT_GE(cousins.p(), least_p);
}

TEST(SamplingSeeds, RequestsWithoutOneAreIndependent) {
  Draws draws(equal_logits());
  engine::SamplerMaker maker(std::nullopt, 3);
  std::vector<std::unique_ptr<engine::Sampler>> samplers;
  std::vector<SamplingState*> states;
  for (std::size_t i = 0; i < Draws::rows; ++i) {
    maker.prepare({.tokens = {0}}, [&](Result<std::unique_ptr<engine::Sampler>> made) {
      samplers.push_back(*std::move(made));
    });
    states.push_back(static_cast<SamplingState*>(samplers.back().get()));
  }
  const auto tokens = rows_of_draws(draws, states, 40);
  Pairs pairs;
  for (std::size_t row = 1; row < tokens.size(); ++row) {
    for (std::size_t i = 0; i < tokens[row].size(); ++i)
      pairs.add(tokens[row - 1][i], tokens[row][i]);
  }
  EXPECT_GE(pairs.p(), least_p);
}

}  // namespace
}  // namespace motley::sampling_tests
