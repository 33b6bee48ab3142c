#pragma once

#include <string>
#include <string_view>

#include "base/error.h"
#include "server/http/messages/message.h"

namespace motley::server {

// An error in Anthropic's shape: {"type": "error", "error": {"type", "message"}, "request_id"},
// with the status and headers of OpenAI's form. The type follows from the status; the message names
// the field.
HttpResponse messages_error(const Error& error, std::string_view request_id);

// The event that ends a failed stream.
std::string messages_error_event(const Error& error);

}  // namespace motley::server
