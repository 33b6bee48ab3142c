// Penalties, biases and masks: what they make of the distribution, and which tokens they leave.

#include <algorithm>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "sampling/draws.h"

namespace motley::sampling_tests {
namespace {

using engine::SamplingParams;
using testing::Contains;
using testing::ElementsAre;
using testing::Not;

// Tokens of a sequence that penalties look at: in the prompt, in the answer, in both.
Setting with_history(const SamplingParams& params) {
  return {.params = params, .prompt = {3, 4, 4, 5, 70}, .answer = {5, 6, 7, 7, 7, 8, 8}};
}

// Logits of both signs, so that a repetition penalty divides and multiplies.
std::vector<float> history_logits(std::uint32_t seed) {
  std::vector<float> logits = random_logits(77, seed, 1.5F);
  for (std::size_t i = 3; i < 9; ++i) logits[i] = i % 2 == 0 ? 2.0F : -0.5F;
  return logits;
}

TEST(SamplingPenalties, RepetitionActsOnPromptAndAnswer) {
  for (const float penalty : {0.6F, 1.2F, 2.5F}) {
    SCOPED_TRACE(cat("repetition_penalty ", penalty));
    expect_draws(history_logits(21), with_history({.repetition_penalty = penalty}));
  }
}

TEST(SamplingPenalties, FrequencyActsOnEachTimeInTheAnswer) {
  for (const float penalty : {-0.7F, 0.4F, 2.0F}) {
    SCOPED_TRACE(cat("frequency_penalty ", penalty));
    expect_draws(history_logits(22), with_history({.frequency_penalty = penalty}));
  }
}

TEST(SamplingPenalties, PresenceActsOnceOnTheAnswer) {
  for (const float penalty : {-1.5F, 0.8F, 2.0F}) {
    SCOPED_TRACE(cat("presence_penalty ", penalty));
    expect_draws(history_logits(23), with_history({.presence_penalty = penalty}));
  }
}

TEST(SamplingPenalties, WorkTogetherAndBeforeTheFilters) {
  expect_draws(history_logits(24), with_history({.temperature = 0.8F,
                                                 .top_k = 30,
                                                 .top_p = 0.95F,
                                                 .min_p = 0.01F,
                                                 .repetition_penalty = 1.3F,
                                                 .frequency_penalty = 0.3F,
                                                 .presence_penalty = -0.4F,
                                                 .logit_bias = {{.token = 7, .bias = 2}}}));
}

TEST(SamplingPenalties, FollowABias) {
  // (1 + 2) / 1.5 is less than 2.2; 1 / 1.5 + 2 would be more.
  const Setting setting{.params = {.temperature = 0,
                                   .repetition_penalty = 1.5F,
                                   .logit_bias = {{.token = 0, .bias = 2}}},
                        .prompt = {0}};
  EXPECT_THAT(drawn_tokens({1, 2.2F}, setting, 16), ElementsAre(1));
}

// Every draw is counted for the next.
TEST(SamplingPenalties, CountWhatIsDrawn) {
  Draws draws({3, 2, -9});
  const Setting setting{.params = {.temperature = 0, .frequency_penalty = 0.6F}, .prompt = {2}};
  engine::SamplingState state = state_in(setting, 1);
  std::vector<std::int32_t> drawn;
  for (int i = 0; i < 6; ++i) {
    engine::SamplingState* const one = &state;
    drawn.push_back(draws.step(std::span(&one, 1))[0]);
  }
  // 3, 2.4, then 1.8 against 2, then 1.8 against 1.4, 1.2 against 1.4, 1.2 against 0.8.
  EXPECT_THAT(drawn, ElementsAre(0, 0, 1, 0, 1, 0));
}

TEST(SamplingMasks, BiasShiftsAndRulesOut) {
  const std::vector<float> logits = random_logits(77, 31, 1);
  expect_draws(logits, {.params = {.logit_bias = {{.token = 2, .bias = 1.5F},
                                                  {.token = 40, .bias = -1},
                                                  {.token = 76, .bias = 3}}}});
  const std::vector<float> equal(40, 0.0F);
  EXPECT_THAT(drawn_tokens(equal, {.params = {.logit_bias = {{.token = 33, .bias = 100}}}}),
              ElementsAre(33));
  EXPECT_THAT(drawn_tokens(equal, {.params = {.logit_bias = {{.token = 33, .bias = -100}}}}),
              Not(Contains(33)));
}

TEST(SamplingMasks, AllowedTokensAndBannedSequences) {
  const std::vector<float> logits = random_logits(77, 33, 1);
  Setting setting{
      .params = {.allowed_tokens = {0, 31, 32, 33, 64, 76}, .banned = {{32}, {5, 33}}},
      .answer = {5},
      .allowed = [](std::int32_t id) { return id == 0 || id == 31 || id == 64 || id == 76; }};
  expect_draws(logits, setting);
  setting.params.allowed_tokens = {};
  setting.allowed = [](std::int32_t id) { return id != 32 && id != 33; };
  expect_draws(logits, setting);
  setting.answer = {5, 5, 4};
  setting.allowed = [](std::int32_t id) { return id != 32; };
  expect_draws(logits, setting);
}

TEST(SamplingMasks, EndsAreRuledOutBeforeMinTokens) {
  std::vector<float> logits = random_logits(77, 32, 1);
  logits[70] = logits[71] = logits[72] = 3;
  Setting setting{.params = {.min_tokens = 3}, .end_ids = {70, 71}, .stop_ids = {72}};
  for (const std::size_t drawn : {0U, 1U, 2U, 3U, 4U}) {
    SCOPED_TRACE(cat(drawn, " tokens out"));
    setting.answer.assign(drawn, 5);
    expect_draws(logits, setting);
    const std::vector<double> expected = expected_probabilities(logits, setting);
    for (const std::size_t end : {70U, 71U, 72U}) EXPECT_EQ(expected[end] > 0, drawn >= 3);
  }
  setting.params.ignore_eos = true;
  setting.answer = {};
  expect_draws(logits, setting);
  const std::vector<std::int32_t> tokens = drawn_tokens(logits, setting);
  EXPECT_THAT(tokens, Contains(70)) << "it ends nothing";
  EXPECT_THAT(tokens, Not(Contains(72))) << "the client's stop token ends all the same";
}

// Tokens are bytes; 256 ends an answer.
class SamplingGrammars : public testing::Test {
 protected:
  static constexpr std::int32_t end = 256;

  static Setting setting(const std::string& regex, const std::string& so_far,
                         const std::string& next, bool may_end) {
    static const grammar::Vocabulary bytes = [] {
      std::vector<std::string> tokens;
      for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
      tokens.emplace_back();
      return grammar::Vocabulary::create({.bytes = tokens, .width = 300, .end_ids = {end}}).value();
    }();
    return {.answer = {so_far.begin(), so_far.end()},
            .end_ids = {end},
            .grammar = grammar::Grammar::compile(
                           {.kind = grammar::Spec::Kind::regex, .text = regex}, bytes)
                           .value(),
            .allowed = [next, may_end](std::int32_t token) {
              if (token == end) return may_end;
              return token < 256 && next.find(static_cast<char>(token)) != std::string::npos;
            }};
  }
};

TEST_F(SamplingGrammars, LeaveTheTokensThatMayFollow) {
  const std::vector<float> logits = random_logits(300, 41, 1);
  const std::string regex = "[a-eQ ]([xy]z|)";
  expect_draws(logits, setting(regex, "", "abcdeQ ", false));
  expect_draws(logits, setting(regex, "c", "xy", true));
  expect_draws(logits, setting(regex, "cx", "z", false));
  EXPECT_THAT(drawn_tokens(logits, setting(regex, "cx", "z", false)), ElementsAre('z'));
}

TEST_F(SamplingGrammars, MaskBeforeTheFiltersChoose) {
  const std::vector<float> logits = random_logits(300, 42, 2);
  Setting limited = setting("[a-z]+", "k", "abcdefghijklmnopqrstuvwxyz", true);
  limited.params = {.temperature = 1.4F, .top_k = 12, .top_p = 0.9F, .min_p = 0.01F};
  expect_draws(logits, limited);
  limited.params = {.frequency_penalty = 1.5F, .logit_bias = {{.token = 'q', .bias = 2}}};
  limited.answer = {'k', 'q', 'q', 'm'};
  expect_draws(logits, limited);
}

TEST_F(SamplingGrammars, AndMinTokensBothRuleOut) {
  std::vector<float> logits = random_logits(300, 43, 1);
  logits[end] = 6;
  Setting both = setting("[a-c]*", "ab", "abc", true);
  both.params.min_tokens = 3;
  EXPECT_THAT(drawn_tokens(logits, both), ElementsAre('a', 'b', 'c'));
  both.params.min_tokens = 2;
  expect_draws(logits, both);
}

}  // namespace
}  // namespace motley::sampling_tests
