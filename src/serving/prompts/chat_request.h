#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "text/chat/chat_template.h"

namespace motley::serving {

// Whether the model may call tools, and how that is enforced.
enum class ToolUse : std::uint8_t {
  none,       // they are not shown to it
  free,       // it decides, in the form of its template
  one_named,  // its output is a call of `tool_name`
  some,       // its output is at least one call
};

// A conversation to answer, whatever protocol it came in.
struct ChatRequest {
  text::ChatInputs inputs = {};  // has tools only if the model may call them
  ToolUse tool_use = ToolUse::none;
  std::string tool_name = {};
  bool parallel_calls = true;  // more than one
  // The place of a tool's parameter schema in the request.
  std::string_view parameters_key = "function.parameters";
  std::size_t calls_before = 0;                   // number of calls in the conversation
  bool continue_final = false;                    // the answer continues the last message
  std::optional<std::string> chat_template = {};  // of its own

  bool must_call() const { return tool_use == ToolUse::one_named || tool_use == ToolUse::some; }
};

}  // namespace motley::serving
