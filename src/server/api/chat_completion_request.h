#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "server/api/generation_fields.h"
#include "text/chat_template.h"

namespace motley::server {

// Whether the model may call tools, and how we see to it.
enum class ToolUse : std::uint8_t {
  none,       // they are not shown to it
  free,       // it decides, in the form of its template
  one_named,  // its output is a call of `tool_name`
  some,       // its output is at least one call
};

// The body of POST /v1/chat/completions.
struct ChatCompletionRequest {
  GenerationFields fields;
  text::ChatInputs inputs;  // tools are there only where the model may call them
  ToolUse tool_use = ToolUse::none;
  std::string tool_name;
  bool parallel_calls = true;  // more than one

  bool must_call() const { return tool_use == ToolUse::one_named || tool_use == ToolUse::some; }
};

Result<ChatCompletionRequest> read_chat_completion_request(const json::Value& body,
                                                           const ApiContext& context);

}  // namespace motley::server
