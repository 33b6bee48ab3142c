#pragma once

#include <string_view>

#include "base/json/json.h"
#include "base/result.h"
#include "server/http/messages/message.h"

namespace motley::server {

// Bounds the parsed body; a list of a million tokens is a valid prompt.
inline constexpr json::ParseLimits body_limits = {.depth = 64, .values = 2'000'000};

// Parses a request's decoded body, which must be an object.
Result<json::Value> parse_body(const HttpRequest& request);
Result<json::Value> parse_body_text(std::string_view text);

}  // namespace motley::server
