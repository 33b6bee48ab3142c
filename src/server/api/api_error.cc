#include "server/api/api_error.h"

#include "base/json/json.h"

namespace motley::server {
namespace {

std::string_view type_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::unauthorized:
      return "authentication_error";
    case ErrorCode::forbidden:
      return "permission_error";
    case ErrorCode::busy:
      return "rate_limit_error";
    default:
      return http_status(code) < 500 ? "invalid_request_error" : "server_error";
  }
}

bool is_target_too_long(const Error& error) {
  return error.code() == ErrorCode::too_long && error.where() == target_place;
}

bool is_prompt_too_long(const Error& error) {
  const std::string_view field = error.where();
  return error.code() == ErrorCode::too_long && (field == "messages" || field == "input" ||
                                                 field == "prompt" || field.starts_with("prompt["));
}

int status_of(const Error& error) {
  if (is_target_too_long(error)) return 414;
  const bool at_field = !error.where().empty();
  return error.code() == ErrorCode::too_long && at_field ? 400 : http_status(error.code());
}

std::string_view code_of(const Error& error) {
  if (is_prompt_too_long(error)) return "context_length_exceeded";
  if (error.code() == ErrorCode::unauthorized) return "invalid_api_key";
  if (error.code() == ErrorCode::not_found && error.where() == "model") return "model_not_found";
  return name(error.code());
}

}  // namespace

std::string error_body(const Error& error) {
  json::Object fields{{"message", error.message()}, {"type", type_of(error.code())}};
  const bool at_fault =
      (http_status(error.code()) < 500 || error.code() == ErrorCode::not_implemented) &&
      !is_target_too_long(error);
  fields.add("param",
             at_fault && !error.where().empty() ? json::Value(error.where()) : json::Value());
  fields.add("code", code_of(error));
  return json::write(json::Object{{"error", std::move(fields)}});
}

HttpResponse error_response(const Error& error) {
  HttpResponse response{.status = status_of(error), .body = error_body(error)};
  if (error.code() == ErrorCode::busy || error.code() == ErrorCode::unavailable ||
      error.code() == ErrorCode::out_of_memory)
    response.headers.emplace_back("Retry-After", "1");
  if (error.code() == ErrorCode::unauthorized)
    response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

HttpResponse openai_error(const Error& error, std::string_view /*request_id*/) {
  return error_response(error);
}

}  // namespace motley::server
