#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/api/completions/completion_lists.h"
#include "server/api/completions/completion_request.h"
#include "server/api/fields/kept_tokens.h"
#include "server/api/fields/token_lists.h"
#include "server/api/reply.h"
#include "server/api/reply_parts.h"

namespace motley::server {

class CompletionReply final : public Reply {
 public:
  // The tokenizer must outlive the reply.
  CompletionReply(ReplyHead head, CompletionRequest request, const text::Tokenizer& tokenizer);

  void keep(const serving::ChoiceUpdate& update) override;
  std::size_t kept_bytes() const override { return kept_bytes_; }
  std::string next_piece(const serving::Transcript& transcript) override;
  std::string events(const serving::ChoiceUpdate& update,
                     const serving::Transcript& transcript) override;
  std::string more_events(const serving::Transcript& transcript) override;
  std::string last_events(const serving::Transcript& transcript) override;
  std::string failure_events(const Error& error) override { return failure_event(error); }

 private:
  struct Choice {
    bool begun = false;
    std::int64_t drawn = 0;  // tokens
    std::string text;
    KeptTokens tokens;
    std::optional<engine::FinishReason> end;
  };
  // The position in the body.
  struct Place {
    std::size_t choice = 0;
    bool inside = false;  // it has been opened
    // Of log-probabilities; behind them those of ids and of the prompt, and the experts of tokens.
    std::size_t list = 0;
    ListPlace entry;
  };
  // New text of a choice. If many tokens of the prompt precede it, it waits for their events.
  struct News {
    std::size_t index = 0;
    std::string text;
    KeptTokens tokens;
    std::optional<engine::FinishReason> end;
    std::size_t next_echoed = 0;  // token of the prompt
  };

  // The lists that follow a choice's log-probabilities.
  enum class IdList : std::uint8_t {
    prompt_token_ids,
    token_ids,
    prompt_logprobs,
    prompt_token_id_logprobs
  };
  static std::string_view name(IdList list);

  bool with_logprobs() const { return request_.fields.sampling.logprobs; }
  bool echoes_logprobs() const { return request_.echo && with_logprobs(); }
  bool keeps_tokens() const { return with_logprobs() || request_.fields.tokens.return_ids; }
  std::size_t top() const { return request_.fields.sampling.alternatives(); }
  std::size_t prompt_of(std::size_t index) const {
    return index / static_cast<std::size_t>(request_.fields.choices);
  }
  // The prompt that is written at present; prompts are written one after the other.
  PromptTokens& echoed(std::size_t prompt);
  ScoredToken sampled(std::size_t index, const KeptTokens& tokens, std::size_t at) const;
  std::string text_of(std::size_t index, std::string_view text) const;

  void open_choice(std::string& piece);
  std::string versions_of(std::size_t index, const serving::Transcript& transcript) const;
  void close_choice(std::string& piece, const serving::Transcript& transcript);
  // Writes the rest of the lists of log-probabilities, or of the others, up to the size of a piece.
  // True at their end.
  bool write_logprobs(std::string& piece, const serving::Transcript& transcript);
  bool write_ids(std::string& piece, const serving::Transcript& transcript);
  // The same for the experts of the choice's tokens.
  bool write_experts(std::string& piece, const serving::Transcript& transcript);
  // One event: the prompt's tokens [first, last), and the new text.
  std::string event(const News& news, std::size_t first, std::size_t last,
                    const serving::Transcript& transcript);

  ReplyHead head_;
  CompletionRequest request_;
  const text::Tokenizer& tokenizer_;
  // By prompt: the length of its echoed tokens, with special ones as written.
  std::vector<std::int64_t> prompt_characters_;
  std::vector<IdList> id_lists_;
  std::vector<Choice> choices_;
  std::size_t kept_bytes_ = 0;
  std::optional<std::size_t> echoed_prompt_;
  std::optional<PromptTokens> echoed_;
  bool begun_ = false;
  bool ended_ = false;
  Place place_;
  std::optional<News> held_;
};

}  // namespace motley::server
