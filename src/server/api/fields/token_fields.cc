#include "server/api/fields/token_fields.h"

#include <utility>

namespace motley::server {

Result<TokenFields> read_token_fields(Fields& fields, int max_prompt_top) {
  TokenFields read;
  MOTLEY_TRY(const auto skip, fields.boolean("skip_special_tokens"));
  read.skip_special = skip.value_or(true);
  MOTLEY_TRY(const auto spaces, fields.boolean("spaces_between_special_tokens"));
  read.spaces_between_special = spaces.value_or(true);
  MOTLEY_TRY(const auto ids, fields.boolean("return_token_ids"));
  read.return_ids = ids.value_or(false);
  MOTLEY_TRY(const auto as_ids, fields.boolean("return_tokens_as_token_ids"));
  read.as_ids = as_ids.value_or(false);
  MOTLEY_TRY(const auto top, fields.integer("prompt_logprobs", 0, max_prompt_top));
  if (top) read.prompt_top = static_cast<std::int32_t>(*top);
  return read;
}

Result<void> leave_prompt_of_stream(TokenFields& tokens, bool stream) {
  if (!stream || !tokens.prompt_top) return {};
  if (*tokens.prompt_top > 0)
    return Error(ErrorCode::unsupported, "a stream has no log-probabilities of the prompt",
                 "prompt_logprobs", "leave out stream, or ask for echo and logprobs");
  tokens.prompt_top.reset();
  return {};
}

void leave_token_lists(Fields& fields, TokenFields& tokens) {
  if (std::exchange(tokens.return_ids, false)) fields.leave("return_token_ids");
  if (tokens.prompt_top) fields.leave("prompt_logprobs");
  tokens.prompt_top.reset();
}

}  // namespace motley::server
