#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json/json.h"
#include "server/api/fields/generation_fields.h"
#include "text/chat/chat_template.h"

namespace motley::server {

// Whether the model may call tools, and how that is enforced.
enum class ToolUse : std::uint8_t {
  none,       // they are not shown to it
  free,       // it decides, in the form of its template
  one_named,  // its output is a call of `tool_name`
  some,       // its output is at least one call
};

// The body of POST /v1/chat/completions.
struct ChatCompletionRequest {
  GenerationFields fields;
  text::ChatInputs inputs;  // has tools only if the model may call them
  ToolUse tool_use = ToolUse::none;
  std::string tool_name;
  bool parallel_calls = true;  // more than one
  // The place of a tool's parameter schema in the body.
  std::string_view parameters_key = "function.parameters";
  std::string echoed;  // the begin of the content: the message that the answer continues
  // Set if the answer lists them.
  std::vector<std::int32_t> prompt_tokens;
  std::size_t calls_before = 0;  // number of calls in the conversation
  bool old_functions = false;    // a call is answered as `function_call`
  bool include_reasoning = true;
  bool continue_final = false;                    // the answer continues the last message
  std::optional<std::string> chat_template = {};  // of its own

  bool must_call() const { return tool_use == ToolUse::one_named || tool_use == ToolUse::some; }
};

Result<ChatCompletionRequest> read_chat_completion_request(const json::Value& body,
                                                           const ApiContext& context);

}  // namespace motley::server
