#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/completions/completion_request.h"
#include "server/api/fields/kept_tokens.h"
#include "serving/answers/transcript.h"
#include "text/tokenizer.h"

namespace motley::server {

// The lists of a completion's `logprobs`, in the order in which they are written.
enum class LogprobList : std::uint8_t { tokens, token_logprobs, top_logprobs, text_offset };
inline constexpr std::array logprob_lists = {LogprobList::tokens, LogprobList::token_logprobs,
                                             LogprobList::top_logprobs, LogprobList::text_offset};

std::string_view name(LogprobList list);

// A token with its log-probability, of a prompt or of a choice.
struct ScoredToken {
  std::int32_t id = 0;
  bool scored = true;  // false for the first token of a prompt, which nothing precedes
  float logprob = 0;
  std::span<const engine::TopLogprob> top = {};
  std::int64_t offset = 0;  // characters before it
};

// Appends a token's entry of a list, by its text or by its id.
void append_entry(std::string& text, LogprobList list, const ScoredToken& token,
                  const text::Tokenizer& tokenizer, bool as_ids);

// The tokens of an echoed prompt, shared by all its choices: scores are shared with the transcript,
// and lists of moderate size are written once.
class PromptTokens {
 public:
  PromptTokens(const CompletionRequest::Prompt& prompt, std::size_t top,
               const text::Tokenizer& tokenizer, bool as_ids);

  std::size_t size() const { return prompt_->tokens.size(); }
  // `scores` are those of the prompt.
  ScoredToken token(std::size_t at, const engine::PromptEvent& scores) const;
  // All entries, joined; null if they are too many to keep.
  const std::string* written(LogprobList list, const engine::PromptEvent& scores);

 private:
  const CompletionRequest::Prompt* prompt_;
  std::size_t top_;
  const text::Tokenizer* tokenizer_;
  bool as_ids_;
  std::vector<std::int64_t> offsets_;
  std::array<std::string, logprob_lists.size()> written_;
};

}  // namespace motley::server
