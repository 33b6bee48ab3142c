#pragma once

#include "base/json/json.h"
#include "base/result.h"
#include "server/api/chat/chat_completion_request.h"
#include "server/api/fields/fields.h"

namespace motley::server {

// What an answer of POST /v1/responses repeats of its tools.
struct ResponsesTools {
  json::Array tools;
  json::Value choice;
};

// Reads `tools`, `tool_choice` and `parallel_tool_calls` into a chat's request. Tools must be
// functions: the server runs none itself.
Result<ResponsesTools> read_responses_tools(Fields& fields, ChatCompletionRequest& request);

}  // namespace motley::server
