#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json/json.h"
#include "server/api/fields/generation_fields.h"
#include "text/chat/chat_template.h"

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
  // Of a tool, where the body has the schema of its arguments.
  std::string_view parameters_key = "function.parameters";
  std::string echoed;  // what the content begins with: the message that it goes on with
  // Where the answer tells of them.
  std::vector<std::int32_t> prompt_tokens;
  std::size_t calls_before = 0;  // that the conversation has
  bool old_functions = false;    // a call is answered as `function_call`
  bool include_reasoning = true;
  bool continue_final = false;                    // the last message stays open
  std::optional<std::string> chat_template = {};  // of its own

  bool must_call() const { return tool_use == ToolUse::one_named || tool_use == ToolUse::some; }
};

Result<ChatCompletionRequest> read_chat_completion_request(const json::Value& body,
                                                           const ApiContext& context);

}  // namespace motley::server
