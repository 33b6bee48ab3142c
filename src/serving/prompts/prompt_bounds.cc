#include "serving/prompts/prompt_bounds.h"

#include <algorithm>
#include <string>

#include "base/cat.h"

namespace motley::serving {
namespace {

constexpr std::size_t max_truncated = 2'000'000;  // tokens of a prompt before truncation

}  // namespace

Error prompt_too_long(std::int64_t max_sequence_tokens, std::string_view has,
                      std::string_view place) {
  return {ErrorCode::too_long,
          cat("This model's maximum context length is ", max_sequence_tokens,
              " tokens. The prompt is too long: it has ", has),
          std::string(place), "send a shorter prompt"};
}

Result<void> check_prompt_bytes(std::size_t bytes, const GenerationSettings& settings,
                                const PromptBounds& bounds, std::string_view place) {
  if (settings.truncate) return {};
  const std::size_t longest =
      static_cast<std::size_t>(bounds.max_sequence_tokens) * bounds.longest_token_bytes;
  if (longest == 0 || bytes <= longest) return {};
  return prompt_too_long(bounds.max_sequence_tokens, cat(bytes, " bytes, which are more"), place);
}

Result<void> check_prompt_length(std::size_t tokens, const GenerationSettings& settings,
                                 const PromptBounds& bounds, std::string_view place) {
  const std::int64_t answer = settings.max_tokens == 0 ? 0 : 1;
  if (static_cast<std::int64_t>(tokens) + answer <= bounds.max_sequence_tokens) return {};
  return prompt_too_long(bounds.max_sequence_tokens,
                         cat(tokens, answer == 0 ? "" : ", and the answer needs at least one"),
                         place);
}

Result<void> check_named_tokens(std::size_t tokens, const GenerationSettings& settings) {
  const engine::NamedTokens& named = settings.prompt_named;
  if (named.width == 0) return {};
  const auto length = static_cast<std::int64_t>(tokens);
  const std::int64_t wanted = length - settings.first_scored(length);
  const std::int64_t given = std::ssize(named.ids) / named.width;
  if (given == wanted) return {};
  return Error(
      ErrorCode::invalid_argument, cat(given, " lists of ids"), "prompt_logprob_token_ids",
      cat("give ", wanted, ", one for each token from ", length - wanted, " to the prompt's end"));
}

text::EncodeBounds encode_bounds(const GenerationSettings& settings, const PromptBounds& bounds) {
  // Prompts that are slightly too long are tokenised completely, so that the error has their
  // length.
  const std::size_t twice = 2 * static_cast<std::size_t>(bounds.max_sequence_tokens);
  const bool bounded = bounds.max_sequence_tokens > 0;
  return {.max_tokens = settings.truncate && bounded ? std::max(twice, max_truncated) : twice,
          .cancelled = bounds.cancelled};
}

bool truncate_prompt(std::vector<std::int32_t>& tokens, std::size_t more,
                     const GenerationSettings& settings, const PromptBounds& bounds) {
  if (!settings.truncate) return false;
  const auto length = static_cast<std::int64_t>(tokens.size());
  std::int64_t kept = *settings.truncate;
  if (kept < 0) {
    if (bounds.max_sequence_tokens == 0) return false;
    // If the answer may exceed the context, it takes what the prompt leaves.
    const std::int64_t wanted = settings.max_tokens.value_or(1);
    const std::int64_t answer = wanted < bounds.max_sequence_tokens ? wanted : 1;
    kept = bounds.max_sequence_tokens - answer - static_cast<std::int64_t>(more);
    kept = std::max<std::int64_t>(kept, 1);
  }
  if (kept >= length) return false;
  tokens.erase(tokens.begin(), tokens.end() - kept);
  return true;
}

}  // namespace motley::serving
