#pragma once

#include <cstdint>
#include <optional>

#include "base/result.h"
#include "server/api/fields/fields.h"

namespace motley::server {

// What an answer lists about tokens besides its text, and which of them the text shows. The fields
// are vLLM's.
struct TokenFields {
  bool skip_special = true;                // in the text
  bool spaces_between_special = true;      // if the decoder inserts them
  bool return_ids = false;                 // for prompt and answer
  bool as_ids = false;                     // "token_id:7" as the text of a token in logprobs
  std::optional<std::int32_t> prompt_top;  // prompt_logprobs, with this many alternatives
};

// Reads all of them.
Result<TokenFields> read_token_fields(Fields& fields, int max_prompt_top);

// Refuses log-probabilities of the prompt in a stream, which has none.
Result<void> leave_prompt_of_stream(TokenFields& tokens, bool stream);

// For a route whose answers list neither the prompt's tokens nor ids.
void leave_token_lists(Fields& fields, TokenFields& tokens);

}  // namespace motley::server
