#include "server/api/messages/error.h"

#include "base/cat.h"
#include "base/json/json.h"
#include "server/api/api_error.h"

namespace motley::server {
namespace {

std::string_view type_of(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 408:
      return "timeout_error";
    case 413:
    case 414:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return status < 500 ? "invalid_request_error" : "api_error";
  }
}

std::string body_of(const Error& error, int status, std::string_view request_id) {
  json::Object inner{{"type", type_of(status)}, {"message", error.message()}};
  json::Object body{{"type", "error"}, {"error", std::move(inner)}};
  if (!request_id.empty()) body.add("request_id", request_id);
  return json::write(body);
}

}  // namespace

HttpResponse messages_error(const Error& error, std::string_view request_id) {
  HttpResponse response = error_response(error);
  response.body = body_of(error, response.status, request_id);
  return response;
}

std::string messages_error_event(const Error& error) {
  const int status = error_response(error).status;
  return cat("event: error\ndata: ", body_of(error, status, {}), "\n\n");
}

}  // namespace motley::server
