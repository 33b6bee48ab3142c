#pragma once

#include <string>
#include <string_view>

#include "base/error.h"
#include "server/http/messages/message.h"

namespace motley::server {

// An error in OpenAI's shape: {"error": {"message", "type", "param", "code"}}. The error's place
// becomes `param` if the request is at fault. `too_long` gives 413 for a whole body, 414 for the
// target, and 400 for a field. For a prompt the code is context_length_exceeded, which clients
// understand as a request to shorten it.
HttpResponse error_response(const Error& error);

// Writes errors in the form that a route's clients expect.
using ErrorWriter = HttpResponse (*)(const Error&, std::string_view request_id);
// As above; this form has no place for an id.
HttpResponse openai_error(const Error& error, std::string_view request_id);
// For the adapter routes: also with the flat fields of older clients, as vLLM names the types.
HttpResponse adapter_error(const Error& error, std::string_view request_id);

// For routes that load adapters in place: with SGLang's fields too.
HttpResponse in_place_error(const Error& error, std::string_view request_id);

// The error with the request's field that it is about as its place; the message keeps the place
// that it had, such as one in a file.
Error at_field(const Error& error, std::string_view field);

// Only the body, for streams that fail after they have begun.
std::string error_body(const Error& error);

}  // namespace motley::server
