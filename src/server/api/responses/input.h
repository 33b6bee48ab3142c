#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/json/json.h"
#include "server/api/fields/fields.h"

namespace motley::server {

// `instructions` and `input` of POST /v1/responses as messages for chat templates.
struct ResponsesConversation {
  json::Array messages;
  // For each message the item of `input` with which it begins; nothing for the instructions and for
  // a textual input.
  std::vector<std::optional<std::size_t>> items;
  bool instructed = false;  // the first message is from `instructions`

  // Moves an error at `messages` to its place in this route's body: `input` or `instructions`.
  Error at_input(const Error& error) const;
};

// The items of one turn of the assistant become one message with reasoning, text and calls.
Result<ResponsesConversation> read_responses_input(Fields& fields);

}  // namespace motley::server
