#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "serving/prompts/generation_settings.h"
#include "text/encode_bounds.h"

namespace motley::serving {

// How long a prompt may be, and until when it is needed.
struct PromptBounds {
  std::int64_t max_sequence_tokens = 0;          // 0: any number
  std::size_t longest_token_bytes = 0;           // 0: not known
  const std::atomic<bool>* cancelled = nullptr;  // set when the client has gone
};

// A prompt with more tokens than a sequence may have; `has` describes their number. Begins with
// OpenAI's wording, which some clients search for.
Error prompt_too_long(std::int64_t max_sequence_tokens, std::string_view has,
                      std::string_view place);

// Refuses a text with more bytes than the tokens of the longest sequence can have, unless it is to
// be truncated.
Result<void> check_prompt_bytes(std::size_t bytes, const GenerationSettings& settings,
                                const PromptBounds& bounds, std::string_view place);

// Refuses a prompt that leaves no space for one token, if any is requested.
Result<void> check_prompt_length(std::size_t tokens, const GenerationSettings& settings,
                                 const PromptBounds& bounds, std::string_view place);

// Refuses ids that are named for another number of tokens than have a log-probability.
Result<void> check_named_tokens(std::size_t tokens, const GenerationSettings& settings);

// Bounds for tokenising a prompt: it stops once there are certainly too many tokens.
text::EncodeBounds encode_bounds(const GenerationSettings& settings, const PromptBounds& bounds);

// Truncates a prompt as `truncate` says; `more` tokens will follow it. Returns whether it removed
// any.
bool truncate_prompt(std::vector<std::int32_t>& tokens, std::size_t more,
                     const GenerationSettings& settings, const PromptBounds& bounds);

}  // namespace motley::serving
