#pragma once

#include "base/json/json.h"
#include "base/result.h"
#include "text/chat/chat_template.h"
#include "text/jinja/runtime.h"
#include "text/jinja/values/value.h"

// Converts a conversation's messages to the form that templates expect.
namespace motley::text {

// The messages as values, all untrusted:
// - reasoning under each of the names reasoning_content and thinking, whichever it came by;
// - content that is null, or left out beside tool calls, as "", and as text or as parts, as the
// template takes it from the role;
// - an assistant's parts of type refusal as parts of text;
// - arguments of tool calls as mappings or as JSON text.
// `habits` says where a template wants it otherwise. Messages that are no list of objects, and
// parts that are no text, are refused.
Result<jinja::Value> prepare_messages(jinja::Runtime& runtime, const json::Value& messages,
                                      const TemplateHabits& habits);

// Whether any message calls a tool.
bool has_tool_calls(const json::Value& messages);

}  // namespace motley::text
