#pragma once

#include "base/json/json.h"
#include "base/result.h"
#include "server/api/fields/fields.h"

namespace motley::server {

struct Conversation {
  json::Array messages;
  bool open = false;  // the last is the beginning of the answer
};

// The messages of a chat, for its template, from a body's `system` and `messages` in Anthropic's
// form: a user's results of tools become messages of the role tool, in their place between the
// user's texts; an assistant's blocks become one message with reasoning, content and calls. Errors
// stand at the block's place in the body.
Result<Conversation> read_conversation(Fields& body);

}  // namespace motley::server
