#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json/json.h"
#include "server/api/fields/generation_fields.h"
#include "serving/prompts/chat_request.h"

namespace motley::server {

// The body of POST /v1/chat/completions.
struct ChatCompletionRequest : serving::ChatRequest {
  GenerationFields fields;
  std::string echoed;  // the begin of the content: the message that the answer continues
  // Set if the answer lists them.
  std::vector<std::int32_t> prompt_tokens;
  bool old_functions = false;  // a call is answered as `function_call`
  bool include_reasoning = true;
};

Result<ChatCompletionRequest> read_chat_completion_request(const json::Value& body,
                                                           const ApiContext& context);

}  // namespace motley::server
