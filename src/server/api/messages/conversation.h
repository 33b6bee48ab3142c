#pragma once

#include "base/json/json.h"
#include "base/result.h"
#include "server/api/fields/fields.h"

namespace motley::server {

struct Conversation {
  json::Array messages;
  bool open = false;  // the last message is the begin of the answer
};

// Converts a body's `system` and `messages` in Anthropic's form to the messages of a chat, for its
// template. Tool results of a user become messages of role tool, in order with the user's texts; an
// assistant's blocks become one message with reasoning, content and calls. Errors have the block's
// place in the body.
Result<Conversation> read_conversation(Fields& body);

}  // namespace motley::server
