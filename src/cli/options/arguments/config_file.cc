#include "cli/options/arguments/config_file.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/cat.h"
#include "base/json/json.h"
#include "base/system/files.h"
#include "cli/options/arguments/yaml_file.h"

namespace motley::cli {
namespace {

constexpr std::size_t longest_file = std::size_t{1} << 20;
constexpr json::ParseLimits json_limits = {.depth = 8, .values = 100'000};

std::string text_of(const json::Value& value) {
  const std::string* const string = value.if_string();
  return string != nullptr ? *string : json::write(value);
}

// The values of one key: a scalar or a map is one, a list is its items.
Result<std::vector<FileValue>> values_of(const json::Value& value, const std::string& where) {
  std::vector<FileValue> values;
  const json::Array* const list = value.if_array();
  if (list == nullptr) {
    if (!value.is_null()) values.push_back({text_of(value)});
    return values;
  }
  for (const json::Value& each : *list) {
    if (each.if_array() != nullptr || each.is_null())
      return Error(ErrorCode::bad_file, each.is_null() ? "an empty item" : "a list in a list",
                   where, "write one value for each item");
    values.push_back({text_of(each)});
  }
  return values;
}

Result<std::vector<YamlEntry>> entries_of_json(std::string_view text, std::string_view name) {
  MOTLEY_TRY(const json::Value value, json::parse(text, name, json_limits));
  MOTLEY_TRY(const json::Object* const object, value.as_object(name));
  std::vector<YamlEntry> entries;
  for (const json::Member& member : object->members())
    entries.push_back({.key = member.key, .value = member.value});
  return entries;
}

bool is_json(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first != text.npos && text[first] == '{';
}

}  // namespace

Result<std::vector<FileOption>> parse_config(std::string_view text, std::string_view name) {
  MOTLEY_TRY(const std::vector<YamlEntry> entries,
             is_json(text) ? entries_of_json(text, name) : parse_yaml(text, name));
  std::vector<FileOption> options;
  std::set<std::string> keys;
  for (const YamlEntry& entry : entries) {
    FileOption option{.key = entry.key};
    option.where = entry.line == 0 ? cat(name, ", ", printable(entry.key))
                                   : cat(name, ":", entry.line, ", ", printable(entry.key));
    const auto wrong = [&](std::string what, std::string fix) {
      return Error(ErrorCode::bad_file, std::move(what), option.where, std::move(fix));
    };
    if (entry.key.empty() || entry.key.starts_with('-'))
      return wrong("a key with dashes before it", "write the option's name without them");
    std::string unified = entry.key;
    std::ranges::replace(unified, '_', '-');
    if (!keys.insert(std::move(unified)).second) return wrong("a key twice", "keep one of them");
    MOTLEY_TRY(option.values, values_of(entry.value, option.where));
    options.push_back(std::move(option));
  }
  return options;
}

Result<std::vector<FileOption>> read_config_file(const std::filesystem::path& path) {
  const auto text = read_text(path, longest_file);
  if (!text.ok()) return Error(text.error()).within("--config");
  return parse_config(*text, printable(path.native()));
}

}  // namespace motley::cli
