#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "grammar/spec.h"

namespace motley::engine {

struct LogitBias {
  std::int32_t token = 0;
  float bias = 0;  // added to the token's logit

  friend bool operator==(const LogitBias&, const LogitBias&) = default;
};

// How a request's tokens are drawn. The defaults leave the model's own distribution.
// docs/design/sampling.md says in which order these apply.
struct SamplingParams {
  float temperature = 1;   // 0: the likeliest token, the lowest id among equals
  std::int32_t top_k = 0;  // this many likeliest tokens; 0: all
  float top_p = 1;         // the likeliest tokens that together reach this share; (0, 1]
  float min_p = 0;         // tokens of at least this share of the likeliest one's; [0, 1]

  float repetition_penalty = 1;  // of tokens in prompt or output; above 0
  float frequency_penalty = 0;   // times how often a token is in the output; [-2, 2]
  float presence_penalty = 0;    // of tokens in the output; [-2, 2]
  std::vector<LogitBias> logit_bias = {};
  // Only these are drawn, ends included; empty: all.
  std::vector<std::int32_t> allowed_tokens = {};
  // Sequences that no output contains: the last token of one is ruled out after the others.
  std::vector<std::vector<std::int32_t>> banned = {};

  // With a seed, a choice has the same tokens whatever runs beside it; each choice has its own
  // random sequence.
  std::optional<std::uint64_t> seed = {};

  // Log-probabilities are the model's own, before all of the above, or with `processed_logprobs`
  // those of the distribution that is drawn from.
  bool logprobs = false;
  bool processed_logprobs = false;
  std::int32_t top_logprobs = 0;  // of the most probable tokens, besides the drawn one
  // With `logprobs`: these tokens stand in place of the most probable ones, in their order.
  std::vector<std::int32_t> logprob_tokens = {};
  bool ranks = false;  // of drawn tokens and of these by log-probability, with `logprobs`

  std::int64_t min_tokens = 0;  // nothing that ends a choice is drawn before
  bool ignore_eos = false;      // the model's own end does not end a choice

  std::optional<grammar::Spec> grammar = {};

  // Tokens that are listed with each drawn one.
  std::size_t alternatives() const {
    return logprob_tokens.empty() ? static_cast<std::size_t>(top_logprobs) : logprob_tokens.size();
  }
};

}  // namespace motley::engine
