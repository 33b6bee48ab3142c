#include "cli/options/adapters/lora_modules.h"

#include <utility>

#include "base/cat.h"
#include "base/json/json.h"
#include "cli/options/foreign/foreign_options.h"
#include "engine/adapter_name.h"

namespace motley::cli {
namespace {

constexpr json::ParseLimits limits = {.depth = 4, .values = 100'000};
constexpr std::string_view form = R"(write NAME=PATH, or {"name": NAME, "path": PATH})";

Error wrong(std::string what, std::string fix = std::string(form)) {
  return {ErrorCode::invalid_argument, std::move(what), std::string(lora_modules_option),
          std::move(fix)};
}

Result<serving::StartAdapter> checked(std::string_view name, std::string_view path) {
  if (!engine::is_adapter_name(name))
    return wrong(cat("not an adapter's name: ", quote(name)),
                 cat("use ", engine::adapter_name_rule));
  if (path.empty()) return wrong(cat("adapter ", quote(name), " has no path"));
  return serving::StartAdapter{.name = std::string(name), .path = path};
}

Result<serving::StartAdapter> read_object(const json::Value& value) {
  const json::Object* const object = value.if_object();
  if (object == nullptr) return wrong(cat("not an object: ", json::write(value)));
  std::string_view name;
  std::string_view path;
  for (const auto& [key, member] : object->members()) {
    const std::string* const text = member.if_string();
    // The parent is the base that is served, and tensors show their layout.
    const bool has_no_effect =
        (key == "base_model_name" && (text != nullptr || member.is_null())) ||
        (key == "is_3d_lora_weight" && member.if_boolean() != nullptr);
    if (has_no_effect) continue;
    if (key != "name" && key != "path") return wrong(cat("unknown field ", quote(key)));
    if (text == nullptr) return wrong(cat(key, " is no text"));
    (key == "name" ? name : path) = *text;
  }
  return checked(name, path);
}

}  // namespace

Result<std::vector<serving::StartAdapter>> parse_lora_modules(std::string_view item) {
  std::vector<serving::StartAdapter> adapters;
  if (!item.starts_with('{') && !item.starts_with('[')) {
    const std::size_t equals = item.find('=');
    if (equals == item.npos) return wrong(cat("not an adapter: ", quote(item)));
    MOTLEY_TRY(serving::StartAdapter adapter,
               checked(item.substr(0, equals), item.substr(equals + 1)));
    adapters.push_back(std::move(adapter));
    return adapters;
  }
  MOTLEY_TRY(const json::Value value, json::parse(item, lora_modules_option, limits));
  const json::Array* const list = value.if_array();
  const std::span<const json::Value> objects =
      list != nullptr ? std::span(*list) : std::span(&value, 1);
  for (const json::Value& each : objects) {
    MOTLEY_TRY(serving::StartAdapter adapter, read_object(each));
    adapters.push_back(std::move(adapter));
  }
  return adapters;
}

}  // namespace motley::cli
