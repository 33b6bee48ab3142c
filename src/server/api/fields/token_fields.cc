#include "server/api/fields/token_fields.h"

#include <utility>

namespace motley::server {

Result<TokenFields> read_token_fields(Fields& fields, int max_prompt_top,
                                      serving::GenerationSettings& settings) {
  TokenFields read;
  MOTLEY_TRY(const auto skip, fields.boolean("skip_special_tokens"));
  settings.skip_special = skip.value_or(true);
  MOTLEY_TRY(const auto spaces, fields.boolean("spaces_between_special_tokens"));
  settings.spaces_between_special = spaces.value_or(true);
  MOTLEY_TRY(const auto ids, fields.boolean("return_token_ids"));
  read.return_ids = ids.value_or(false);
  MOTLEY_TRY(const auto as_ids, fields.boolean("return_tokens_as_token_ids"));
  read.as_ids = as_ids.value_or(false);
  MOTLEY_TRY(const auto top, fields.integer("prompt_logprobs", 0, max_prompt_top));
  if (top) settings.prompt_top = static_cast<std::int32_t>(*top);
  return read;
}

Result<void> leave_prompt_of_stream(serving::GenerationSettings& settings, bool stream) {
  if (!stream || !settings.prompt_top) return {};
  if (*settings.prompt_top > 0)
    return Error(ErrorCode::unsupported, "a stream has no log-probabilities of the prompt",
                 "prompt_logprobs", "leave out stream, or ask for echo and logprobs");
  settings.prompt_top.reset();
  return {};
}

void leave_token_lists(Fields& fields, TokenFields& tokens, serving::GenerationSettings& settings) {
  if (std::exchange(tokens.return_ids, false)) fields.leave("return_token_ids");
  if (settings.prompt_top) fields.leave("prompt_logprobs");
  settings.prompt_top.reset();
}

}  // namespace motley::server
