#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "server/api/chat/chat_completion_request.h"
#include "server/api/fields/kept_tokens.h"
#include "server/api/fields/token_lists.h"
#include "server/api/reply.h"
#include "server/api/reply_parts.h"
#include "serving/forms/output_parser.h"

namespace motley::server {

class ChatReply final : public Reply {
 public:
  // Has one parser for each choice. The tokenizer must outlive the reply.
  ChatReply(ReplyHead head, ChatCompletionRequest request, const text::Tokenizer& tokenizer,
            std::vector<std::unique_ptr<serving::OutputParser>> parsers);

  void keep(const serving::ChoiceUpdate& update) override;
  std::size_t kept_bytes() const override { return kept_bytes_; }
  std::string next_piece(const serving::Transcript& transcript) override;
  std::string events(const serving::ChoiceUpdate& update,
                     const serving::Transcript& transcript) override;
  std::string last_events(const serving::Transcript& transcript) override;
  std::string failure_events(const Error& error) override { return failure_event(error); }

 private:
  struct Choice {
    std::unique_ptr<serving::OutputParser> parser;
    bool begun = false;
    serving::ParsedOutput output;  // all of it, for the body
    std::size_t calls = 0;         // number of calls that have begun
    std::int64_t drawn = 0;        // tokens
    KeptTokens tokens;
    std::optional<engine::FinishReason> end;
  };

  bool with_logprobs() const { return request_.fields.sampling.logprobs; }
  bool with_ids() const { return request_.fields.tokens.return_ids; }
  std::size_t top() const { return request_.fields.sampling.alternatives(); }

  // Parses the new text.
  serving::ParsedOutput parse(Choice& choice, const serving::ChoiceUpdate& update) const;
  json::Array logprobs_of(const serving::ChoiceUpdate& update) const;
  json::Object message_of(const Choice& choice) const;
  void open_choice(std::string& piece);
  void close_choice(std::string& piece, const serving::Transcript& transcript);
  // Writes the rest of the choice's lists, and of the prompt's, up to the size of a piece. True at
  // their end.
  bool write_choice_lists(std::string& piece, const serving::Transcript& transcript);
  bool write_prompt_lists(std::string& piece, const serving::Transcript& transcript);
  json::Value finish_reason(const Choice& choice, std::optional<engine::FinishReason> end) const;
  // Lists the ids of tokens if they are requested and there are any; `more` are further members of
  // the choice.
  std::string chunk(std::size_t index, json::Object delta, json::Array logprobs, json::Value finish,
                    std::optional<json::Array> ids, std::string_view more = {}) const;
  std::string versions_of(std::size_t index, const serving::Transcript& transcript) const {
    return version_members(transcript, index, with_ids(), request_.fields.adapters);
  }

  ReplyHead head_;
  ChatCompletionRequest request_;
  const text::Tokenizer& tokenizer_;
  std::vector<Choice> choices_;
  std::size_t kept_bytes_ = 0;

  // The position in the body.
  bool begun_ = false;
  bool ended_ = false;
  bool inside_ = false;  // the choice
  std::size_t choice_ = 0;
  std::size_t list_ = 0;  // list of the choice, or of the prompt
  ListPlace entry_;
};

}  // namespace motley::server
