#include "engine/sampling/sampling_state.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <map>
#include <utility>

#include "base/check.h"
#include "kernels/sampling_arithmetic.h"

namespace motley::engine {
namespace {

// Below this, only the most probable token is left.
constexpr float least_temperature = 1e-5F;

std::uint64_t next_id() {
  static std::atomic<std::uint64_t> last = 0;
  return ++last;
}

// By rising id; the last of several for one token counts.
std::vector<LogitBias> in_order(const std::vector<LogitBias>& biases) {
  std::map<std::int32_t, float> by_token;
  for (const LogitBias& bias : biases) by_token[bias.token] = bias.bias;
  std::vector<LogitBias> each;
  each.reserve(by_token.size());
  for (const auto& [token, bias] : by_token) each.push_back({.token = token, .bias = bias});
  return each;
}

// The biases, with these tokens ruled out.
std::vector<LogitBias> without(std::vector<LogitBias> biases,
                               std::span<const std::int32_t> tokens) {
  for (const std::int32_t token : tokens)
    biases.push_back({.token = token, .bias = -std::numeric_limits<float>::infinity()});
  return in_order(biases);
}

// Draws count from 0; seeds of choices use numbers that no draw uses.
std::uint64_t seed_of_choice(std::uint64_t seed, int choice) {
  constexpr std::uint64_t seeds = std::uint64_t{1} << 63;
  return kernels::sampling::random_bits(seed, seeds + static_cast<std::uint64_t>(choice));
}

}  // namespace

SamplingState::SamplingState(const Request& request, std::unique_ptr<grammar::Cursor> grammar,
                             std::uint64_t seed)
    : id_(next_id()), grammar_(std::move(grammar)) {
  const SamplingParams& params = request.sampling;
  Rules rules;
  // One token has the probability 1, which only its distribution says.
  const bool one_token = params.top_k == 1 && !params.processed_logprobs;
  const bool greedy = params.temperature < least_temperature || one_token;
  if (params.logprobs) rules.logprob_tokens = params.logprob_tokens;
  const std::int32_t top = rules.logprob_tokens.empty() ? params.top_logprobs : 0;
  rules.choice = {
      .inverse_temperature = greedy ? 0 : 1 / params.temperature,
      .top_k = params.top_k,
      .top_p = params.top_p,
      .min_p = params.min_p,
      .repetition = params.repetition_penalty,
      .presence = params.presence_penalty,
      .frequency = params.frequency_penalty,
      .top_log_probabilities = params.logprobs ? top : -1,
      .processed = params.processed_logprobs,
      .ranked = params.ranks,
  };
  rules.penalties = params.repetition_penalty != 1 || params.presence_penalty != 0 ||
                    params.frequency_penalty != 0;
  rules.prompt = static_cast<std::int64_t>(request.tokens.size());
  rules.min_tokens = params.min_tokens;
  rules.tokens_allowed = TokenRules(params);
  rules.biases = in_order(params.logit_bias);
  rules.early_biases = without(rules.biases, request.choice_ends());
  rules.tokens = request.tokens.size() +
                 static_cast<std::size_t>(std::max<std::int64_t>(request.max_tokens, 0));
  if (rules.penalties) {
    tokens_.reserve(rules.tokens);
    tokens_ = request.tokens;
  }
  seed_ = seed_of_choice(params.seed.value_or(seed), 0);
  rules.choice.seed = params.seed.value_or(seed);
  rules_ = std::make_shared<const Rules>(std::move(rules));
}

SamplingState::SamplingState(const SamplingState& other, int choice)
    : rules_(other.rules_),
      id_(next_id()),
      seed_(seed_of_choice(other.rules_->choice.seed, choice)),
      drawn_(other.drawn_),
      token_rules_(other.token_rules_) {
  if (rules_->penalties) {
    tokens_.reserve(rules_->tokens);
    tokens_ = other.tokens_;
  }
  if (other.grammar_) grammar_ = other.grammar_->fork();
}

std::unique_ptr<Sampler> SamplingState::fork(int choice) const {
  return std::unique_ptr<Sampler>(new SamplingState(*this, choice));
}

kernels::SampleChoice SamplingState::choice() const {
  kernels::SampleChoice next = rules_->choice;
  next.seed = seed_;
  next.draw = static_cast<std::uint64_t>(drawn_);
  return next;
}

std::span<const LogitBias> SamplingState::biases() const {
  return drawn_ < rules_->min_tokens ? rules_->early_biases : rules_->biases;
}

bool SamplingState::accept(std::int32_t token) {
  ++drawn_;
  if (rules_->penalties) tokens_.push_back(token);
  rules_->tokens_allowed.accept(token_rules_, token);
  return grammar_ && grammar_->accept(token);
}

}  // namespace motley::engine
