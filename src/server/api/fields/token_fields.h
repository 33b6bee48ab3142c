#pragma once

#include <cstdint>

#include "base/result.h"
#include "server/api/fields/fields.h"
#include "serving/prompts/generation_settings.h"

namespace motley::server {

// What an answer lists about tokens besides its text. The fields are vLLM's.
struct TokenFields {
  bool return_ids = false;  // for prompt and answer
  bool as_ids = false;      // "token_id:7" as the text of a token in logprobs
};

// The most that a request may ask for.
struct TokenBounds {
  int prompt_top = 0;  // alternatives to a token of the prompt
  std::int64_t vocabulary = 0;
};

// Reads them, and which tokens the text and the prompt's log-probabilities show.
Result<TokenFields> read_token_fields(Fields& fields, const TokenBounds& bounds,
                                      serving::GenerationSettings& settings);

// `logprobs` of completions: a number of alternatives.
Result<void> read_number_of_logprobs(Fields& fields, int most, engine::SamplingParams& sampling);

// `logprob_token_ids`: tokens that stand in place of the likeliest ones. Each counts once.
Result<void> read_named_logprobs(Fields& fields, const TokenBounds& bounds,
                                 engine::SamplingParams& sampling);
// The same where log-probabilities have to be asked for, which is done.
Result<void> read_named_with_logprobs(Fields& fields, const TokenBounds& bounds,
                                      engine::SamplingParams& sampling);

// Refuses log-probabilities of the prompt in a stream, which has none, and a place where they begin
// without them.
Result<void> settle_prompt_scores(serving::GenerationSettings& settings, bool stream);

// For a route whose answers list neither the prompt's tokens nor ids.
void leave_token_lists(Fields& fields, TokenFields& tokens, serving::GenerationSettings& settings);

}  // namespace motley::server
