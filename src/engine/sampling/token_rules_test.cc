#include "engine/sampling/token_rules.h"

#include <algorithm>
#include <random>

#include <gtest/gtest.h>

namespace motley::engine {
namespace {

using Sequences = std::vector<std::vector<std::int32_t>>;

constexpr std::int32_t vocabulary = 70;

TokenRules banning(const Sequences& banned) { return TokenRules(SamplingParams{.banned = banned}); }

std::vector<std::int32_t> ruled_out(const TokenRules& rules, TokenRules::State state) {
  std::vector<std::uint32_t> mask((vocabulary + 31) / 32, ~std::uint32_t{0});
  rules.apply(state, mask);
  std::vector<std::int32_t> tokens;
  for (std::int32_t token = 0; token < vocabulary; ++token) {
    if ((mask[static_cast<std::size_t>(token) / 32] >> (token % 32) & 1) == 0)
      tokens.push_back(token);
  }
  return tokens;
}

// By definition: the tokens that would complete a banned sequence.
std::vector<std::int32_t> ends_behind(std::vector<std::int32_t> text, const Sequences& banned) {
  std::vector<std::int32_t> tokens;
  for (std::int32_t token = 0; token < vocabulary; ++token) {
    text.push_back(token);
    if (std::ranges::any_of(banned, [&](const auto& each) {
          return each.size() <= text.size() &&
                 std::ranges::equal(each, std::span(text).last(each.size()));
        }))
      tokens.push_back(token);
    text.pop_back();
  }
  return tokens;
}

std::vector<std::int32_t> repeated(std::int32_t token, std::size_t times, std::int32_t last) {
  std::vector<std::int32_t> sequence(times, token);
  sequence.push_back(last);
  return sequence;
}

TEST(TokenRules, RuleOutEveryEndOfABannedSequence) {
  std::mt19937 random(5);
  const auto below = [&](std::int32_t bound) {
    return std::uniform_int_distribution(0, bound - 1)(random);
  };
  for (int round = 0; round < 200; ++round) {
    // Few different tokens, so that sequences overlap and nest.
    const std::int32_t letters = 2 + below(3);
    Sequences banned(static_cast<std::size_t>(below(12)) + 1);
    for (auto& each : banned) {
      each.resize(static_cast<std::size_t>(below(6)) + 1);
      std::ranges::generate(each, [&] { return 31 + below(letters); });
    }
    const TokenRules rules = banning(banned);
    struct Text {
      std::vector<std::int32_t> tokens;
      TokenRules::State state = 0;
    };
    // A text, and one that forks from it.
    std::vector<Text> texts(1);
    for (int step = 0; step < 30; ++step) {
      if (step == 9) texts.push_back(texts[0]);
      for (Text& text : texts) {
        ASSERT_EQ(ruled_out(rules, text.state), ends_behind(text.tokens, banned))
            << "round " << round << ", step " << step;
        text.tokens.push_back(31 + below(letters));
        rules.accept(text.state, text.tokens.back());
      }
    }
  }
}

TEST(TokenRules, OfNoSequencesKeepNoState) {
  TokenRules::State state = 0;
  EXPECT_EQ(TokenRules().accept(state, 7), 0U);
  const TokenRules allowing(SamplingParams{.allowed_tokens = {3}});
  EXPECT_EQ(allowing.accept(state, 3), 0U);
  EXPECT_EQ(state, 0U);
  EXPECT_FALSE(allowing.empty());
  EXPECT_TRUE(TokenRules().empty());
}

// The most states that texts of `tokens` tokens look at, including those that fall back furthest.
std::size_t states_looked_at(const TokenRules& rules, std::size_t tokens) {
  std::size_t most = 0;
  for (const std::size_t period : {1U, 2U, 100U, 501U}) {
    TokenRules::State state = 0;
    std::size_t looked_at = 0;
    for (std::size_t i = 1; i <= tokens; ++i)
      looked_at += rules.accept(state, i % period == 0 && period > 1 ? 2 : 1);
    most = std::max(most, looked_at);
  }
  return most;
}

TEST(TokenRules, TakeATokenInTwoStatesHoweverLongTheSequencesAre) {
  for (const std::size_t length : {10U, 500U, 5000U}) {
    const TokenRules rules = banning({repeated(1, length, 3), repeated(1, length / 2, 4)});
    EXPECT_LE(states_looked_at(rules, 3000), 6000U) << length;
  }
}

TEST(TokenRules, LookAtNoSequenceThatDoesNotEndHere) {
  // 60 tokens, each preceded by a sequence of 100.
  Sequences banned;
  for (std::int32_t last = 5; last < 65; ++last) banned.push_back(repeated(1, 100, last));
  const TokenRules rules = banning(banned);
  std::vector<std::uint32_t> mask((vocabulary + 31) / 32, ~std::uint32_t{0});
  TokenRules::State state = 0;
  for (int i = 0; i < 99; ++i) {
    EXPECT_EQ(rules.apply(state, mask), i == 0 ? 1U : 2U) << "the state and the empty one";
    rules.accept(state, 1);
  }
  rules.accept(state, 1);
  EXPECT_EQ(rules.apply(state, mask), 62U);
  // Prefixes that are suffixes of one another are skipped if no sequence ends after them.
  const TokenRules nested = banning({repeated(1, 400, 3), repeated(1, 7, 4), {5}});
  state = 0;
  for (int i = 0; i < 399; ++i) nested.accept(state, 1);
  EXPECT_EQ(nested.apply(state, mask), 5U);
}

}  // namespace
}  // namespace motley::engine
