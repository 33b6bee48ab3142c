#pragma once

#include <string_view>

#include "base/json/json.h"
#include "base/result.h"
#include "text/chat/chat_template.h"

namespace motley::text {

// Reads a conversation from {"messages": [...], "tools", "documents", "add_generation_prompt",
// "chat_template_kwargs"}; fields other than messages may be absent or null. `where` names the
// object in messages.
Result<ChatInputs> read_chat_request(const json::Value& value, std::string_view where);

}  // namespace motley::text
