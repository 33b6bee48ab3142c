#include "server/api/policy_update.h"

#include <charconv>
#include <limits>
#include <system_error>
#include <utility>

#include "base/cat.h"
#include "engine/adapter_name.h"
#include "server/api/fields/field_limits.h"
#include "server/api/fields/fields.h"
#include "server/api/push_request.h"

namespace motley::server {
namespace {

Error wrong_field(std::string what, std::string_view field, std::string_view fix) {
  return {ErrorCode::invalid_argument, std::move(what), std::string(field), std::string(fix)};
}

// Before the '@' and the policy; empty where a version is not ART's.
std::string_view generation_of(std::string_view version) {
  return policy_of(version) ? version.substr(0, version.rfind('@')) : std::string_view();
}

Result<std::string> read_needed(Fields& fields, std::string_view name, std::size_t most) {
  MOTLEY_TRY(auto text, fields.string(name));
  if (text && !text->empty() && text->size() <= most && text->find('\0') == std::string::npos)
    return *std::move(text);
  return wrong_field(text ? "not a name or path" : "it is needed", name,
                     cat("give 1 to ", most, " bytes"));
}

// A part of the version's name.
Result<std::optional<std::string>> read_generation(Fields& fields, std::string_view name) {
  MOTLEY_TRY(auto text, fields.string(name));
  if (text) MOTLEY_TRY_VOID(check_version(cat(*text, "@", std::numeric_limits<int>::max()), name));
  return text;
}

}  // namespace

std::optional<std::int64_t> policy_of(std::string_view name) {
  const std::size_t at = name.rfind('@');
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view digits = name.substr(at + 1);
  std::int64_t number = 0;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (read.ec != std::errc() || read.ptr != digits.data() + digits.size() || number < 0)
    return std::nullopt;
  return number;
}

std::string PolicyUpdate::version() const { return cat(generation_id, "@", policy_version); }

Result<void> PolicyUpdate::may_replace(std::string_view version) const {
  const auto conflict = [](std::string what, std::string_view field) {
    return Error(ErrorCode::conflict, std::move(what), std::string(field),
                 "ask for the present version (GET /v1/adapters/NAME)");
  };
  const std::string_view present = generation_of(version);
  if (expected_generation_id && *expected_generation_id != present)
    return conflict(cat("its generation is ", quote(present), " now"), "expected_generation_id");
  if (!generation_id.empty() && generation_id == present)
    return conflict("it has this generation already", "generation_id");
  if (const auto policy = policy_of(version); policy && policy_version < *policy)
    return conflict(cat("its policy is ", *policy, " now, which is later"), "policy_version");
  return {};
}

Result<PolicyUpdate> read_policy_update(const json::Value& body) {
  MOTLEY_TRY(const json::Object* const object, body.as_object("body"));
  Fields fields(*object);
  PolicyUpdate update;
  MOTLEY_TRY(auto operation, fields.string("operation_id"));
  if (operation && (operation->empty() || operation->size() > max_operation_id_bytes))
    return wrong_field(cat("an id of ", operation->size(), " bytes"), "operation_id",
                       cat("use 1 to ", max_operation_id_bytes, " bytes"));
  update.operation_id = std::move(operation).value_or("");
  constexpr std::size_t longest_name = 256;
  MOTLEY_TRY(update.model_name, read_needed(fields, "model_name", longest_name));
  MOTLEY_TRY(auto slot, fields.string("lora_slot"));
  update.slot = slot ? *std::move(slot) : update.model_name.substr(0, update.model_name.rfind('@'));
  if (!engine::is_adapter_name(update.slot))
    return wrong_field(cat("not an adapter's name: ", quote(update.slot)), "lora_slot",
                       cat("use ", engine::adapter_name_rule));
  MOTLEY_TRY(update.path, read_needed(fields, "lora_path", field_limits::lora_path.most));
  MOTLEY_TRY(auto generation, read_generation(fields, "generation_id"));
  update.generation_id = std::move(generation).value_or("");
  MOTLEY_TRY(update.expected_generation_id, read_generation(fields, "expected_generation_id"));
  MOTLEY_TRY(const auto policy,
             fields.integer("policy_version", 0, std::numeric_limits<std::int32_t>::max()));
  if (!policy) return wrong_field("it is needed", "policy_version", "give the trainer's step");
  update.policy_version = *policy;
  fields.accept({"base_model_name", "is_3d_lora_weight"});
  MOTLEY_TRY_VOID(fields.finish());
  return update;
}

}  // namespace motley::server
