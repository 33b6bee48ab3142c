#pragma once

#include <string>
#include <string_view>

#include "base/error.h"
#include "server/http/message.h"

namespace motley::server {

// An error in OpenAI's shape: {"error": {"message", "type", "param", "code"}}. What the error says
// of its place is `param` where the request is at fault.
// An error that is `too_long` is 413 for a whole body, 414 for the target, and 400 for a field: the
// code of a prompt's is context_length_exceeded, by which clients know to send a shorter one.
HttpResponse error_response(const Error& error);

// How the clients of a route want to see errors.
using ErrorWriter = HttpResponse (*)(const Error&, std::string_view request_id);
// As above, which has no place for an id.
HttpResponse openai_error(const Error& error, std::string_view request_id);

// The body of that alone, for streams that fail on their way.
std::string error_body(const Error& error);

}  // namespace motley::server
