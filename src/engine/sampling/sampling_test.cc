#include <future>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/sampling/sampler_maker.h"
#include "engine/sampling/sampling_batch.h"
#include "engine/sampling/sampling_state.h"
#include "grammar/forked_helper.h"
#include "grammar/local_cursor.h"
#include "kernels/elementary.h"
#include "tensor/arena.h"
#include "tensor/device/cpu_device.h"

namespace motley::engine {
namespace {

using testing::ElementsAre;

constexpr std::int64_t vocabulary = 300;
constexpr std::int32_t end_id = 256;

// A CPU that draws pieces of at most 4 rows, with counts for 5 sequences.
class Sampling : public testing::Test {
 protected:
  tensor::CpuDevice device_{{.threads = 2}};
  std::unique_ptr<tensor::Stream> stream_ = device_.create_stream().value();
  tensor::Arena scratch_{device_.allocate(1 << 16).value()};
  ops::Context context_{
      .kernels = &kernels::cpu_table(), .stream = stream_->handle(), .scratch = &scratch_};
  std::unique_ptr<SamplingBatch> batch_ = SamplingBatch::create(device_, {.rows = 12,
                                                                          .piece_rows = 4,
                                                                          .vocabulary = vocabulary,
                                                                          .sequence_tokens = 100,
                                                                          .counted_sequences = 5})
                                              .value();

  // One step of these states over rows of logits, in pieces; every state takes its token.
  std::vector<SamplingBatch::Drawn> step(std::vector<std::vector<float>> logits,
                                         std::vector<SamplingState*> states) {
    batch_->begin();
    for (std::size_t first = 0; first < states.size(); first += 4) {
      const std::size_t count = std::min<std::size_t>(4, states.size() - first);
      std::vector<float> piece;
      for (std::size_t i = first; i < first + count; ++i)
        piece.insert(piece.end(), logits[i].begin(), logits[i].end());
      const tensor::Tensor rows(std::as_writable_bytes(std::span(piece)).data(), DType::f32,
                                {static_cast<std::int64_t>(count), vocabulary});
      batch_->launch(context_, *stream_, rows, std::span(states).subspan(first, count)).value();
    }
    batch_->collect(*stream_).value();
    stream_->synchronize().value();
    std::vector<SamplingBatch::Drawn> all;
    for (std::size_t i = 0; i < states.size(); ++i) {
      all.push_back(batch_->drawn(static_cast<std::int64_t>(i)));
      if (all.back().token >= 0) states[i]->accept(all.back().token);
    }
    return all;
  }
  std::int32_t draw(const std::vector<float>& logits, SamplingState& state) {
    return step({logits}, {&state})[0].token;
  }
};

std::vector<float> some_logits(std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> logits(vocabulary);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

// Logits that fall with the id.
std::vector<float> falling_logits() {
  std::vector<float> logits(vocabulary);
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = 10 - static_cast<float>(i);
  return logits;
}

SamplingState state_of(const SamplingParams& params, std::vector<std::int32_t> prompt = {1}) {
  return {Request{.tokens = std::move(prompt), .sampling = params, .end_ids = {end_id}}, nullptr,
          77};
}

grammar::Tokens bytes() {
  grammar::Tokens tokens{.bytes = {}, .width = vocabulary, .end_ids = {end_id}};
  for (int byte = 0; byte < 256; ++byte) tokens.bytes.emplace_back(1, static_cast<char>(byte));
  tokens.bytes.emplace_back();
  return tokens;
}

std::unique_ptr<grammar::Cursor> following(const std::string& regex) {
  const grammar::Vocabulary known = grammar::Vocabulary::create(bytes()).value();
  const grammar::Grammar grammar =
      grammar::Grammar::compile({.kind = grammar::Spec::Kind::regex, .text = regex}, known).value();
  return std::make_unique<grammar::LocalCursor>(grammar::Position(grammar, {end_id}));
}

TEST_F(Sampling, DrawsTheSameTokensWhateverRunsBeside) {
  const SamplingParams params{.top_p = 0.9F, .repetition_penalty = 1.2F, .seed = 5};
  SamplingState alone = state_of(params);
  SamplingState together = state_of(params);
  std::vector<SamplingState> others;
  for (std::uint64_t i = 0; i < 9; ++i)
    others.push_back(state_of({.frequency_penalty = 0.5F, .seed = i}));
  for (std::uint32_t i = 0; i < 20; ++i) {
    const std::vector<float> logits = some_logits(i);
    std::vector<SamplingState*> states;
    for (std::size_t other = 0; other < i % 10; ++other) states.push_back(&others[other]);
    states.push_back(&together);
    const std::int32_t expected = draw(logits, alone);
    const auto drawn = step(std::vector(states.size(), logits), states);
    ASSERT_EQ(drawn.back().token, expected) << "draw " << i;
  }
}

TEST_F(Sampling, CountsTokensOfPromptAndAnswer) {
  // 3 and 4 are in the prompt, which a presence penalty ignores.
  SamplingState presence = state_of({.temperature = 0, .presence_penalty = 1.5F}, {3, 4});
  std::vector<std::int32_t> drawn;
  for (int i = 0; i < 4; ++i) drawn.push_back(draw(falling_logits(), presence));
  EXPECT_THAT(drawn, ElementsAre(0, 1, 0, 0)) << "falls by 1.5 once, not again";
  SamplingState repetition = state_of({.temperature = 0, .repetition_penalty = 1.15F}, {0, 2});
  EXPECT_EQ(draw(falling_logits(), repetition), 1);
}

TEST_F(Sampling, CountsAgainWhatLostItsPlace) {
  const SamplingParams params{.temperature = 0, .frequency_penalty = 0.4F};
  std::vector<SamplingState> states;
  for (int i = 0; i < 12; ++i) states.push_back(state_of(params));
  std::vector<SamplingState*> all;
  for (SamplingState& state : states) all.push_back(&state);
  SamplingState alone = state_of(params);
  for (int i = 0; i < 8; ++i) {
    const std::int32_t expected = draw(falling_logits(), alone);
    for (const auto& drawn : step(std::vector(12, falling_logits()), all))
      ASSERT_EQ(drawn.token, expected) << "draw " << i;
  }
}

TEST_F(Sampling, ForksToOtherNumbersAndTheSameCounts) {
  const SamplingParams params{.seed = 9};
  const SamplingState first = state_of(params);
  std::map<std::vector<std::int32_t>, int> sequences;
  for (int choice = 0; choice < 4; ++choice) {
    for (int again = 0; again < 2; ++again) {
      const std::unique_ptr<Sampler> sampler = first.fork(choice);
      auto& state = dynamic_cast<SamplingState&>(*sampler);
      std::vector<std::int32_t> drawn;
      for (std::uint32_t i = 0; i < 6; ++i) drawn.push_back(draw(some_logits(i), state));
      ++sequences[drawn];
    }
  }
  EXPECT_EQ(sequences.size(), 4U) << "a choice is the same again, and unlike the others";
}

TEST_F(Sampling, EndsNotBeforeMinTokens) {
  std::vector<float> logits = falling_logits();
  logits[end_id] = 50;
  SamplingState state =
      state_of({.temperature = 0, .logit_bias = {{.token = 0, .bias = -20}}, .min_tokens = 2});
  EXPECT_EQ(draw(logits, state), 1);
  EXPECT_EQ(draw(logits, state), 1);
  EXPECT_EQ(draw(logits, state), end_id);
  SamplingState ignoring = state_of({.temperature = 0, .min_tokens = 2, .ignore_eos = true});
  EXPECT_EQ(draw(logits, ignoring), end_id) << "where it ends nothing it is a token like others";
}

TEST_F(Sampling, DrawsAllowedTokensAlone) {
  SamplingState state = state_of({.temperature = 0, .allowed_tokens = {299, 7, 40}});
  EXPECT_EQ(draw(falling_logits(), state), 7);
  std::vector<float> ends = falling_logits();
  ends[end_id] = 50;
  EXPECT_EQ(draw(ends, state), 7) << "an end has to be among them";
  SamplingState last = state_of({.temperature = 0, .allowed_tokens = {299}});
  SamplingState free = state_of({.temperature = 0});
  const auto drawn = step({falling_logits(), falling_logits()}, {&free, &last});
  EXPECT_EQ(drawn[0].token, 0);
  EXPECT_EQ(drawn[1].token, 299);
  SamplingState biased = state_of({.temperature = 0,
                                   .logit_bias = {{.token = 40, .bias = 100}},
                                   .allowed_tokens = {7, 40},
                                   .logprobs = true});
  EXPECT_EQ(draw(falling_logits(), biased), 40);
}

TEST_F(Sampling, WritesNoBannedSequence) {
  const auto six = [&](SamplingState& state) {
    std::vector<std::int32_t> tokens;
    // 3 is more probable than 2, and so on; the token drawn last becomes least probable.
    std::vector<float> logits = {0, 1, 2, 3};
    logits.resize(vocabulary, -50);
    for (int i = 0; i < 6; ++i) {
      std::vector<float> now = logits;
      if (!tokens.empty()) now[static_cast<std::size_t>(tokens.back())] -= 20;
      tokens.push_back(draw(now, state));
    }
    return tokens;
  };
  SamplingState free = state_of({.temperature = 0});
  EXPECT_THAT(six(free), ElementsAre(3, 2, 3, 2, 3, 2));
  SamplingState one = state_of({.temperature = 0, .banned = {{3}}});
  EXPECT_THAT(six(one), ElementsAre(2, 1, 2, 1, 2, 1));
  SamplingState two = state_of({.temperature = 0, .banned = {{3, 2}, {3, 1, 3}}});
  EXPECT_THAT(six(two), ElementsAre(3, 1, 2, 3, 1, 2));
  // The prompt is no output; choices continue from their own tokens.
  SamplingState prompted = state_of({.temperature = 0, .banned = {{3, 2}}}, {3});
  std::vector<float> second = {0, 1, 2};
  second.resize(vocabulary, -50);
  EXPECT_EQ(draw(second, prompted), 2);
  std::vector<float> third = second;
  third[3] = 3;
  EXPECT_EQ(draw(third, prompted), 3);
  const std::unique_ptr<Sampler> forked = prompted.fork(1);
  EXPECT_EQ(draw(second, dynamic_cast<SamplingState&>(*forked)), 1);
}

TEST_F(Sampling, TokenRulesHoldInsideAGrammar) {
  const Request request{
      .tokens = {1},
      .sampling = {.temperature = 0, .allowed_tokens = {'a', 'b', end_id}, .banned = {{'a', 'b'}}},
      .end_ids = {end_id}};
  SamplingState state(request, following("[a-c]{2}"), 0);
  std::vector<float> logits(vocabulary);
  logits['c'] = 9;
  logits['b'] = 5;
  EXPECT_EQ(draw(logits, state), 'b');
  logits['a'] = 7;
  EXPECT_EQ(draw(logits, state), 'a');
  SamplingState ruled(request, following("ab"), 0);
  EXPECT_EQ(draw(logits, ruled), 'a');
  EXPECT_EQ(draw(logits, ruled), -1) << "what the grammar wants is banned";
}

TEST_F(Sampling, GivesLogProbabilitiesToRowsThatAsk) {
  SamplingState asks = state_of({.temperature = 0,
                                 .logit_bias = {{.token = 0, .bias = -20}},
                                 .logprobs = true,
                                 .top_logprobs = 2});
  SamplingState silent = state_of({.temperature = 0});
  const auto drawn = step({falling_logits(), falling_logits()}, {&silent, &asks});
  EXPECT_TRUE(drawn[0].top.empty());
  ASSERT_EQ(drawn[1].top.size(), 2U);
  EXPECT_EQ(drawn[1].token, 1);
  EXPECT_EQ(drawn[1].top[0].token, 0);
  EXPECT_NEAR(drawn[1].top[0].logprob, -0.458675, 1e-5);
  EXPECT_EQ(drawn[1].top[1].logprob, drawn[1].logprob);
  EXPECT_NEAR(drawn[1].logprob, -1.458675, 1e-5);
}

TEST_F(Sampling, GivesLogProbabilitiesOfNamedTokens) {
  SamplingParams params{.temperature = 0, .logprobs = true, .top_logprobs = 3};
  params.logprob_tokens = {7, 0, 299};
  SamplingState silent = state_of(params);
  params.ranks = true;
  SamplingState ranked = state_of(params);
  SamplingState other = state_of({.temperature = 0, .logprobs = true, .top_logprobs = 1});
  const std::vector<float> logits = falling_logits();
  const auto drawn =
      step({logits, logits, logits, logits, logits}, {&ranked, &other, &silent, &other, &ranked});
  for (const std::size_t row : {0U, 2U, 4U}) {
    ASSERT_EQ(drawn[row].top.size(), 3U);
    EXPECT_EQ(drawn[row].top[0].token, 7);
    EXPECT_NEAR(drawn[row].top[0].logprob, drawn[row].logprob - 7, 1e-5);
    EXPECT_EQ(drawn[row].top[1].token, 0);
    EXPECT_EQ(drawn[row].top[1].logprob, drawn[row].logprob);
    EXPECT_EQ(drawn[row].top[2].token, 299);
  }
  EXPECT_THAT(drawn[0].top_ranks, ElementsAre(8, 1, 300));
  EXPECT_THAT(drawn[4].top_ranks, ElementsAre(8, 1, 300));
  EXPECT_TRUE(drawn[2].top_ranks.empty());
  ASSERT_EQ(drawn[3].top.size(), 1U);
  EXPECT_EQ(drawn[3].top[0].token, 0);
}

TEST_F(Sampling, FollowsAGrammarToItsEnd) {
  const Request request{.tokens = {1}, .sampling = {.seed = 1}, .end_ids = {end_id}};
  SamplingState state(request, following("(yes|no)!"), 0);
  const std::unique_ptr<Sampler> forked = state.fork(1);
  auto& other = dynamic_cast<SamplingState&>(*forked);
  SamplingState free = state_of({.seed = 1});
  std::string text;
  for (std::uint32_t i = 0; i < 10; ++i) {
    batch_->begin();
    const auto drawn = step(std::vector(3, some_logits(i)), {&free, &state, &other});
    if (drawn[1].token == end_id) break;
    text += static_cast<char>(drawn[1].token);
    if (text.size() == 4) break;
  }
  EXPECT_TRUE(text == "yes!" || text == "no!") << text;
}

TEST_F(Sampling, SaysThatNothingMayFollow) {
  const Request request{.tokens = {1}, .sampling = {.min_tokens = 5}, .end_ids = {end_id}};
  SamplingState state(request, following("a"), 0);
  EXPECT_EQ(draw(some_logits(1), state), 'a');
  EXPECT_EQ(draw(some_logits(2), state), -1) << "the grammar has ended, the answer may not";
}

// The maker's result for a request, or its error.
Result<std::unique_ptr<Sampler>> prepared(SamplerMaker& maker, const Request& request) {
  std::promise<Result<std::unique_ptr<Sampler>>> answer;
  maker.prepare(request, [&answer](Result<std::unique_ptr<Sampler>> sampler) {
    answer.set_value(std::move(sampler));
  });
  return answer.get_future().get();
}

TEST_F(Sampling, MakesSamplersOfRequests) {
  SamplerMaker maker(bytes(), 3, {.start = grammar::fork_helper});
  const Request free{.tokens = {1}};
  std::map<std::vector<std::int32_t>, int> sequences;
  for (int request = 0; request < 3; ++request) {
    const std::unique_ptr<Sampler> sampler = prepared(maker, free).value();
    auto& state = dynamic_cast<SamplingState&>(*sampler);
    std::vector<std::int32_t> drawn;
    for (std::uint32_t i = 0; i < 6; ++i) drawn.push_back(draw(some_logits(i), state));
    ++sequences[drawn];
  }
  EXPECT_EQ(sequences.size(), 3U) << "without a seed no request is like another";

  Request bound{.tokens = {1}, .end_ids = {end_id}};
  bound.sampling.grammar = grammar::Spec{.kind = grammar::Spec::Kind::regex, .text = "z"};
  const std::unique_ptr<Sampler> sampler = prepared(maker, bound).value();
  auto& state = dynamic_cast<SamplingState&>(*sampler);
  EXPECT_FALSE(state.ready()) << "nothing has asked for its mask";
  state.grammar()->request_mask();
  state.grammar()->wait(TimePoint::max());
  EXPECT_EQ(draw(some_logits(1), state), 'z');
  bound.sampling.grammar->text = "(";
  EXPECT_EQ(prepared(maker, bound).error().code(), ErrorCode::invalid_argument);
  SamplerMaker without(std::nullopt, 3);
  EXPECT_EQ(prepared(without, bound).error().code(), ErrorCode::unsupported);
}

}  // namespace
}  // namespace motley::engine
