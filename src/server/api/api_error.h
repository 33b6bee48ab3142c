#pragma once

#include "base/error.h"
#include "server/http/message.h"

namespace motley::server {

// An error in OpenAI's shape: {"error": {"message", "type", "param", "code"}}. What the error says
// of its place is `param` where the request is at fault.
HttpResponse error_response(const Error& error);

// The body of that alone, for streams that fail on their way.
std::string error_body(const Error& error);

}  // namespace motley::server
