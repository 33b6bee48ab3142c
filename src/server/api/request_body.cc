#include "server/api/request_body.h"

namespace motley::server {

Result<json::Value> parse_body(const HttpRequest& request) { return parse_body_text(request.body); }

Result<json::Value> parse_body_text(std::string_view text) {
  auto body = json::parse(text, "body", body_limits);
  // The error concerns the whole body, not a field.
  if (!body.ok())
    return Error(ErrorCode::invalid_argument, body.error().message(), "", "send one JSON object");
  if (body->if_object() == nullptr)
    return Error(ErrorCode::invalid_argument, "the body is no JSON object", "", "send one");
  return body;
}

}  // namespace motley::server
