#pragma once

#include "base/json/json.h"
#include "base/result.h"
#include "server/api/chat/chat_completion_request.h"
#include "server/api/fields/fields.h"

namespace motley::server {

// What an answer of POST /v1/responses repeats of its request's tools.
struct ResponsesTools {
  json::Array tools;
  json::Value choice;
};

// Reads `tools`, `tool_choice` and `parallel_tool_calls` into a chat's request. Only functions are
// tools here: the server runs none of its own.
Result<ResponsesTools> read_responses_tools(Fields& fields, ChatCompletionRequest& request);

}  // namespace motley::server
