#include "server/api/request_body.h"

namespace motley::server {

Result<json::Value> parse_body(const HttpRequest& request) {
  auto body = json::parse(request.body, "body", body_limits);
  // The error concerns the whole body, not a field.
  if (!body.ok())
    return Error(ErrorCode::invalid_argument, body.error().message(), "", "send one JSON object");
  if (body->if_object() == nullptr)
    return Error(ErrorCode::invalid_argument, "the body is no JSON object", "", "send one");
  return body;
}

}  // namespace motley::server
