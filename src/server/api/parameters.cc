#include "server/api/parameters.h"

#include <utility>

#include "base/ascii.h"
#include "base/cat.h"
#include "server/api/request_body.h"

namespace motley::server {
namespace {

Error wrong(std::string_view name, std::string_view what, std::string_view fix) {
  return {ErrorCode::invalid_argument, std::string(what), std::string(name), std::string(fix)};
}

}  // namespace

Result<Parameters> Parameters::read(const HttpRequest& request) {
  Parameters parameters;
  parameters.query_ = &request.query;
  if (request.body.empty()) return parameters;
  MOTLEY_TRY(parameters.body_, parse_body(request));
  return parameters;
}

const json::Value* Parameters::member(std::string_view name) const {
  const auto object = body_.as_object({});
  const json::Value* const found = object.ok() ? (*object)->find(name) : nullptr;
  return found == nullptr || found->is_null() ? nullptr : found;
}

Result<std::optional<std::string>> Parameters::text(std::string_view name) const {
  MOTLEY_TRY(auto asked, query_->value(name));
  if (asked) return asked;
  const json::Value* const given = member(name);
  if (given == nullptr) return std::optional<std::string>();
  const auto value = given->as_string(name);
  if (!value.ok()) return wrong(name, "not a text", "give a string");
  return std::optional(**value);
}

Result<std::optional<bool>> Parameters::flag(std::string_view name) const {
  constexpr std::string_view fix = "give true or false";
  MOTLEY_TRY(const auto asked, query_->value(name));
  if (asked) {
    const std::string value = ascii::lower(*asked);
    if (value == "true" || value == "1") return std::optional(true);
    if (value == "false" || value == "0") return std::optional(false);
    return wrong(name, cat("neither true nor false: ", quote(*asked)), fix);
  }
  const json::Value* const given = member(name);
  if (given == nullptr) return std::optional<bool>();
  const auto value = given->as_boolean(name);
  if (!value.ok()) return wrong(name, "neither true nor false", fix);
  return std::optional(*value);
}

Result<std::vector<std::string>> Parameters::texts(std::string_view name) const {
  std::vector<std::string> all;
  const json::Value* const given = member(name);
  if (given == nullptr) return all;
  const auto list = given->as_array(name);
  if (!list.ok()) return wrong(name, "not a list", "give a list of strings");
  for (const json::Value& each : **list) {
    const auto text = each.as_string(name);
    if (!text.ok()) return wrong(name, "a list with what is no text", "give a list of strings");
    all.push_back(**text);
  }
  return all;
}

}  // namespace motley::server
