#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/api/completion_request.h"
#include "server/api/reply.h"
#include "server/api/reply_parts.h"

namespace motley::server {

class CompletionReply final : public Reply {
 public:
  // Request and tokenizer must outlive the reply.
  CompletionReply(ReplyHead head, const CompletionRequest& request,
                  const text::Tokenizer& tokenizer);

  void keep(const ChoiceUpdate& update) override;
  std::string whole(const Transcript& transcript) override;
  std::string events(const ChoiceUpdate& update, const Transcript& transcript) override;
  std::string last_events(const Transcript& transcript) override;

 private:
  struct Logprobs {
    json::Array tokens;
    json::Array logprobs;
    json::Array top;
    json::Array offsets;
  };
  struct Choice {
    bool begun = false;
    std::string text;
    Logprobs logprobs;
    std::optional<EndOfChoice> end;
  };

  const CompletionRequest::Prompt& prompt_of(std::size_t index) const;
  void add_tokens(const ChoiceUpdate& update, Logprobs& into) const;
  // The prompt, its tokens and their log-probabilities: the beginning of an echo.
  void add_prompt(std::size_t index, const Transcript& transcript, std::string& text,
                  Logprobs& into) const;
  json::Object choice_object(std::size_t index, std::string text, Logprobs logprobs,
                             std::optional<EndOfChoice> end) const;
  json::Value top_object(std::span<const engine::TopLogprob> top, std::int32_t token,
                         float logprob) const;

  ReplyHead head_;
  const CompletionRequest& request_;
  const text::Tokenizer& tokenizer_;
  // Of the tokens that an echo lists, special ones as they are written, by prompt.
  std::vector<std::int64_t> prompt_characters_;
  std::vector<Choice> choices_;
};

}  // namespace motley::server
