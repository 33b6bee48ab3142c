#pragma once

#include "base/json/json.h"
#include "base/result.h"
#include "server/api/chat/chat_completion_request.h"

namespace motley::server {

// The body of POST /v1/messages, Anthropic's form of a chat.
struct MessagesRequest {
  ChatCompletionRequest chat;
  bool show_thinking = true;
};

// The purpose for which a body is read: an answer, or the number of tokens in its prompt, which
// needs no `max_tokens`.
enum class MessagesUse : std::uint8_t { answer, count };

Result<MessagesRequest> read_messages_request(const json::Value& body, const ApiContext& context,
                                              MessagesUse use);

}  // namespace motley::server
