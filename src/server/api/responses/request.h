#pragma once

#include <string>

#include "base/json/json.h"
#include "server/api/chat/chat_completion_request.h"
#include "server/api/responses/input.h"

namespace motley::server {

// The body of POST /v1/responses: a conversation, and what the answer repeats.
struct ResponsesRequest {
  ChatCompletionRequest chat;
  ResponsesConversation conversation;  // its messages have been moved to `chat`
  // Members of the answer, as JSON without braces.
  std::string repeated;
};

Result<ResponsesRequest> read_responses_request(const json::Value& body, const ApiContext& context);

}  // namespace motley::server
