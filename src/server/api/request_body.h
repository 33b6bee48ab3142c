#pragma once

#include "base/json/json.h"
#include "base/result.h"
#include "server/http/messages/message.h"

namespace motley::server {

// Parses a request's decoded body, which must be an object.
Result<json::Value> parse_body(const HttpRequest& request);

}  // namespace motley::server
