#include "server/api/request_body.h"

namespace motley::server {
namespace {

// Bounds what a body turns into; a list of a million tokens is a prompt that we can serve.
constexpr json::ParseLimits body_limits = {.depth = 64, .values = 2'000'000};

}  // namespace

Result<json::Value> parse_body(const HttpRequest& request) {
  auto body = json::parse(request.body, "body", body_limits);
  // The whole body is at fault, which no field is.
  if (!body.ok())
    return Error(ErrorCode::invalid_argument, body.error().message(), "", "send one JSON object");
  if (body->if_object() == nullptr)
    return Error(ErrorCode::invalid_argument, "the body is no JSON object", "", "send one");
  return body;
}

}  // namespace motley::server
