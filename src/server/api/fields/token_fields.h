#pragma once

#include <cstdint>
#include <optional>

#include "base/result.h"
#include "server/api/fields/fields.h"

namespace motley::server {

// What an answer says of tokens beside its text, and which of them its text shows. The fields are
// vLLM's.
struct TokenFields {
  bool skip_special = true;                // in the text
  bool spaces_between_special = true;      // where the decoder puts them
  bool return_ids = false;                 // of prompt and answer
  bool as_ids = false;                     // "token_id:7" for the text of a token in logprobs
  std::optional<std::int32_t> prompt_top;  // prompt_logprobs, with so many of the likeliest
};

// Takes all of them.
Result<TokenFields> read_token_fields(Fields& fields);

// A stream has no log-probabilities of its prompt: asking for them there is refused.
Result<void> leave_prompt_of_stream(TokenFields& tokens, bool stream);

// For a route whose answers have no lists of the prompt's tokens, and no ids.
void leave_token_lists(Fields& fields, TokenFields& tokens);

}  // namespace motley::server
