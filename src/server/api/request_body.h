#pragma once

#include "base/json/json.h"
#include "base/result.h"
#include "server/http/message.h"

namespace motley::server {

// The object that a request's decoded body is.
Result<json::Value> parse_body(const HttpRequest& request);

}  // namespace motley::server
