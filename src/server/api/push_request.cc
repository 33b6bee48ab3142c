#include "server/api/push_request.h"

#include <algorithm>
#include <array>

#include "base/ascii.h"
#include "base/cat.h"
#include "server/api/adapter_request.h"
#include "server/api/fields/field_limits.h"
#include "server/api/fields/fields.h"

namespace motley::server {
namespace {

Error wrong_field(std::string what, std::string_view field, std::string_view fix) {
  return {ErrorCode::invalid_argument, std::move(what), std::string(field), std::string(fix)};
}

// No comma, which stands between the versions of several adapters.
bool is_version(std::string_view text) {
  return !text.empty() && text.size() <= max_version_bytes && std::ranges::all_of(text, [](char c) {
    return ascii::is_letter(c) || ascii::is_digit(c) ||
           std::string_view("._-/:@+=").find(c) != std::string_view::npos;
  });
}

constexpr std::string_view version_rule =
    "use 1 to 128 letters, digits, '.', '_', '-', '/', ':', '@', '+' or '='";

using Text = std::optional<std::string>;

// What a push asks for beside its files, from wherever it stands.
struct PushFields {
  Text version, expected_version, operation_id, on_replace;
  Text b_columns, orientation;
};

Result<PushRequest> request_of(const PushFields& asked) {
  PushRequest request;
  if (asked.version) {
    MOTLEY_TRY_VOID(check_version(*asked.version, "version"));
    request.spec.version = *asked.version;
  }
  // An empty one: there is no such adapter yet.
  if (asked.expected_version && !asked.expected_version->empty())
    MOTLEY_TRY_VOID(check_version(*asked.expected_version, "expected_version"));
  request.spec.expected_version = asked.expected_version;
  if (asked.operation_id) {
    if (asked.operation_id->empty() || asked.operation_id->size() > max_operation_id_bytes)
      return wrong_field(cat("an id of ", asked.operation_id->size(), " bytes"), "operation_id",
                         cat("use 1 to ", max_operation_id_bytes, " bytes"));
    request.operation_id = *asked.operation_id;
  }
  MOTLEY_TRY(request.spec.switches, read_on_replace(asked.on_replace));
  if (asked.b_columns) {
    MOTLEY_TRY(request.spec.load.b_columns, lora::parse_b_columns(*asked.b_columns));
  }
  if (asked.orientation) {
    MOTLEY_TRY(request.spec.load.orientation, lora::parse_orientation(*asked.orientation));
  }
  return request;
}

Result<bool> read_flag(const Query& query, std::string_view name) {
  MOTLEY_TRY(const Text text, query.value(name));
  if (!text || *text == "false" || *text == "0") return false;
  if (text->empty() || *text == "true" || *text == "1") return true;
  return wrong_field(cat("neither true nor false: ", quote(*text)), name, "write true or false");
}

}  // namespace

Result<void> check_version(std::string_view version, std::string_view field) {
  if (is_version(version)) return {};
  return wrong_field(cat("not a version: ", quote(version)), field, version_rule);
}

bool is_json(std::string_view content_type) {
  const std::string_view type = content_type.substr(0, content_type.find(';'));
  constexpr std::string_view json = "application/json";
  return type.size() >= json.size() &&
         std::ranges::equal(type.substr(0, json.size()), json,
                            [](char a, char b) { return ascii::lower(a) == b; }) &&
         type.find_first_not_of(' ', json.size()) == std::string_view::npos;
}

Result<PushRequest> read_push_query(const Query& query) {
  PushFields asked;
  MOTLEY_TRY(asked.version, query.value("version"));
  MOTLEY_TRY(asked.expected_version, query.value("expected_version"));
  MOTLEY_TRY(asked.operation_id, query.value("operation_id"));
  MOTLEY_TRY(asked.on_replace, query.value("on_replace"));
  MOTLEY_TRY(asked.b_columns, query.value("b_columns"));
  MOTLEY_TRY(asked.orientation, query.value("orientation"));
  MOTLEY_TRY(PushRequest request, request_of(asked));
  MOTLEY_TRY(request.spec.pinned, read_flag(query, "pinned"));
  MOTLEY_TRY(request.spec.load.partial, read_flag(query, "partial"));
  return request;
}

Result<PushRequest> read_push_body(const json::Value& body) {
  MOTLEY_TRY(const json::Object* const object, body.as_object("body"));
  Fields fields(*object);
  PushFields asked;
  MOTLEY_TRY(asked.version, fields.string("version"));
  MOTLEY_TRY(asked.expected_version, fields.string("expected_version"));
  MOTLEY_TRY(asked.operation_id, fields.string("operation_id"));
  MOTLEY_TRY(asked.on_replace, fields.string("on_replace"));
  MOTLEY_TRY(asked.b_columns, fields.string("b_columns"));
  MOTLEY_TRY(asked.orientation, fields.string("orientation"));
  MOTLEY_TRY(const auto pinned, fields.boolean("pinned"));
  MOTLEY_TRY(const auto partial, fields.boolean("partial"));
  MOTLEY_TRY(const auto path, fields.string("path"));
  MOTLEY_TRY_VOID(fields.finish());
  MOTLEY_TRY(PushRequest request, request_of(asked));
  request.spec.pinned = pinned.value_or(false);
  request.spec.load.partial = partial.value_or(false);
  if (!path || path->empty() || path->size() > field_limits::lora_path.most ||
      path->find('\0') != std::string::npos)
    return wrong_field("not a path", "path",
                       "give the path of an adapter's folder, or send its files as safetensors");
  request.spec.path = *path;
  return request;
}

}  // namespace motley::server
