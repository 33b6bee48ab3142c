#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/json/json.h"
#include "server/api/fields/fields.h"

namespace motley::server {

// `instructions` and `input` of POST /v1/responses as the messages that chat templates know.
struct ResponsesConversation {
  json::Array messages;
  // Of each message: the item of `input` that it begins with; nothing for the instructions and for
  // an input that is a text.
  std::vector<std::optional<std::size_t>> items;
  bool instructed = false;  // the first message is `instructions`

  // An error at `messages` as the client of this route sees it: at `input` or `instructions`.
  Error at_input(const Error& error) const;
};

// Items of one turn of the assistant make one message: its reasoning, its text, and its calls.
Result<ResponsesConversation> read_responses_input(Fields& fields);

}  // namespace motley::server
