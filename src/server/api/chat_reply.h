#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/api/chat_completion_request.h"
#include "server/api/reply.h"
#include "server/api/reply_parts.h"
#include "server/output/output_parser.h"

namespace motley::server {

class ChatReply final : public Reply {
 public:
  // One parser for each choice. Request and tokenizer must outlive the reply.
  ChatReply(ReplyHead head, const ChatCompletionRequest& request, const text::Tokenizer& tokenizer,
            std::vector<std::unique_ptr<OutputParser>> parsers);

  void keep(const ChoiceUpdate& update) override;
  std::string whole(const Transcript& transcript) override;
  std::string events(const ChoiceUpdate& update, const Transcript& transcript) override;
  std::string last_events(const Transcript& transcript) override;

 private:
  struct Choice {
    std::unique_ptr<OutputParser> parser;
    bool begun = false;
    ParsedOutput output;    // all of it, for whole()
    std::size_t calls = 0;  // that have begun
    json::Array logprobs;
    std::optional<EndOfChoice> end;
  };

  // What is new, taken apart.
  static ParsedOutput parse(Choice& choice, const ChoiceUpdate& update);
  json::Array logprobs_of(const ChoiceUpdate& update) const;
  json::Value token_object(std::int32_t id, float logprob) const;
  json::Value finish_reason(const Choice& choice, std::optional<EndOfChoice> end) const;
  std::string chunk(std::size_t index, json::Object delta, json::Array logprobs,
                    json::Value finish) const;

  ReplyHead head_;
  const ChatCompletionRequest& request_;
  const text::Tokenizer& tokenizer_;
  std::vector<Choice> choices_;
};

}  // namespace motley::server
