#include "server/api/api_error.h"

#include <algorithm>
#include <array>

#include "base/ascii.h"
#include "base/cat.h"
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

bool is_about_target(const Error& error) { return error.where() == target_place; }

// The fields in which the protocols have their prompts.
struct PromptField {
  std::string_view name;
  bool rendered = false;  // what a template says of it may quote it
};
constexpr std::array prompt_fields = {PromptField{"messages", true}, PromptField{"input", true},
                                      PromptField{"prompt", false},
                                      PromptField{"token_ids", false}};

const PromptField* prompt_field_at(std::string_view place) {
  const auto found = std::ranges::find_if(prompt_fields, [&](const PromptField& each) {
    if (!place.starts_with(each.name)) return false;
    const std::string_view rest = place.substr(each.name.size());
    return rest.empty() || rest.front() == '[' || rest.front() == '.';
  });
  return found == prompt_fields.end() ? nullptr : &*found;
}

bool is_prompt_too_long(const Error& error) {
  return error.code() == ErrorCode::too_long && prompt_field_at(error.where()) != nullptr;
}

int status_of(const Error& error) {
  if (is_about_target(error)) return error.code() == ErrorCode::too_long ? 414 : 400;
  const bool at_field = !error.where().empty();
  return error.code() == ErrorCode::too_long && at_field ? 400 : http_status(error.code());
}

std::string_view code_of(const Error& error) {
  if (is_prompt_too_long(error)) return "context_length_exceeded";
  if (error.code() == ErrorCode::unauthorized) return "invalid_api_key";
  if (error.code() == ErrorCode::not_found && error.where() == "model") return "model_not_found";
  return name(error.code());
}

json::Object error_fields(const Error& error) {
  json::Object fields{{"message", error.message()}, {"type", type_of(error.code())}};
  const bool at_fault =
      (http_status(error.code()) < 500 || error.code() == ErrorCode::not_implemented) &&
      !is_about_target(error);
  fields.add("param",
             at_fault && !error.where().empty() ? json::Value(error.where()) : json::Value());
  fields.add("code", code_of(error));
  return fields;
}

constexpr std::string_view marks_of_names = "._/-@:[]";

// Whether a quoted text can be no more than a name: of a field, a model, an option.
bool is_name(std::string_view text) {
  constexpr std::size_t longest = 64;
  return text.size() <= longest && std::ranges::all_of(text, [](char c) {
           return ascii::is_letter(c) || ascii::is_digit(c) ||
                  marks_of_names.find(c) != std::string_view::npos;
         });
}

// The message without what may be text of a prompt: where templates refuse messages, and what
// messages quote of a body.
std::string message_for_log(const Error& error) {
  const PromptField* const prompt = prompt_field_at(error.where());
  if ((prompt != nullptr && prompt->rendered) || error.where() == "chat_template") return {};
  const std::string message = error.message();
  const bool syntax = message.find("not valid JSON") != std::string::npos;
  std::string kept;
  std::size_t at = 0;
  while (at < message.size()) {
    const std::size_t open = message.find('\'', at);
    const std::size_t close = open == std::string::npos ? open : message.find('\'', open + 1);
    if (close == std::string::npos) break;
    const std::string_view quoted = std::string_view(message).substr(open + 1, close - open - 1);
    kept += message.substr(at, open - at);
    kept += !syntax && is_name(quoted) ? cat("'", quoted, "'") : "(text)";
    at = close + 1;
  }
  // Behind an apostrophe without its partner anything may follow.
  return kept + message.substr(at, message.find('\'', at) - at);
}

std::string_view flat_type_of(int status) {
  if (status == 404) return "NotFoundError";
  if (status == 409) return "ConflictError";
  return status == 400  ? "InvalidUserInput"
         : status < 500 ? "BadRequestError"
                        : "InternalServerError";
}

json::Object adapter_fields(const Error& error, int status) {
  return {{"error", error_fields(error)}, {"object", "error"},      {"message", error.message()},
          {"type", flat_type_of(status)}, {"param", json::Value()}, {"code", status}};
}

}  // namespace

Error at_field(const Error& error, std::string_view field) {
  if (error.where() == field) return error;
  const std::string_view colon = error.where().empty() ? "" : ": ";
  return {error.code(), cat(error.where(), colon, error.what()), std::string(field), error.fix()};
}

std::string error_body(const Error& error) {
  return json::write(json::Object{{"error", error_fields(error)}});
}

HttpResponse error_response(const Error& error) {
  HttpResponse response{.status = status_of(error),
                        .body = error_body(error),
                        .error_code = std::string(code_of(error)),
                        .error_message = message_for_log(error)};
  if (error.code() == ErrorCode::busy || error.code() == ErrorCode::unavailable ||
      error.code() == ErrorCode::out_of_memory)
    response.headers.emplace_back("Retry-After", "1");
  if (error.code() == ErrorCode::unauthorized)
    response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

HttpResponse adapter_error(const Error& error, std::string_view /*request_id*/) {
  HttpResponse response = error_response(error);
  response.body = json::write(adapter_fields(error, response.status));
  return response;
}

HttpResponse in_place_error(const Error& error, std::string_view /*request_id*/) {
  HttpResponse response = error_response(error);
  json::Object fields = adapter_fields(error, response.status);
  fields.add("success", false);
  fields.add("error_message", error.message());
  response.body = json::write(fields);
  return response;
}

HttpResponse openai_error(const Error& error, std::string_view /*request_id*/) {
  return error_response(error);
}

}  // namespace motley::server
