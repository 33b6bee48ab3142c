#include "server/api/api_keys.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <span>
#include <utility>

#include "base/cat.h"
#include "base/json/json.h"
#include "base/system/files.h"
#include "server/api/fields/fields.h"

namespace motley::server {
namespace {

constexpr std::size_t max_bytes = 1 << 20;
constexpr std::int64_t max_weight = 1000;
constexpr std::size_t max_patterns = 1000;
constexpr std::string_view scheme = "bearer ";

// Reads all of `given`, whether it matches or not.
bool equal_in_constant_time(std::string_view key, std::string_view given) {
  unsigned difference = key.size() == given.size() ? 0 : 1;
  for (std::size_t i = 0; i < given.size(); ++i)
    difference |=
        static_cast<unsigned char>(given[i]) ^ static_cast<unsigned char>(key[i % key.size()]);
  return difference == 0;
}

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// Of what begins with a letter and has no colon no part is taken for an address.
bool is_name(std::string_view text) {
  const auto fits = [](char c) {
    return is_letter(c) || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.' || c == '@';
  };
  return !text.empty() && text.size() <= 128 && is_letter(text.front()) &&
         std::ranges::all_of(text, fits);
}

// Header values are printable and have no blanks at their ends.
bool can_be_sent(std::string_view key) {
  return !key.empty() && key.front() != ' ' && key.back() != ' ' &&
         std::ranges::all_of(key, [](char c) { return c >= ' ' && c <= '~'; });
}

Error no_keys(std::string_view file, std::string advice) {
  return {ErrorCode::bad_file, "a file of keys that holds none", printable(file),
          std::move(advice)};
}

Result<ApiKeys::Key> read_holder(const json::Object& object, std::string place) {
  Fields fields(object, std::move(place));
  const auto wrong = [&](std::string_view field, std::string_view what, std::string advice) {
    return Error(ErrorCode::bad_file, std::string(what), fields.place(field), std::move(advice));
  };
  ApiKeys::Key key;
  Principal holder;
  MOTLEY_TRY(const auto text, fields.string("key"));
  if (!text || !can_be_sent(*text))
    return wrong("key", text ? "no header can carry this key" : "no key",
                 "give one of printable ASCII without blanks at its ends");
  key.text = *text;
  MOTLEY_TRY(const auto name, fields.string("name"));
  if (!name || !is_name(*name))
    return wrong("name", name ? cat("a holder can't be called ", quote(*name)) : "no name",
                 "give a name that begins with a letter, of letters, digits, '-', '_', '.', '@'");
  holder.name = *name;
  MOTLEY_TRY(const auto weight, fields.integer("weight", 1, max_weight));
  holder.weight = static_cast<std::uint32_t>(weight.value_or(1));
  if (const json::Value* const adapters = object.find("adapters"); adapters != nullptr) {
    if (adapters->is_null())
      return wrong("adapters", "null, which could mean all or none",
                   "leave it out for all adapters, or give [] for none");
    MOTLEY_TRY(holder.adapters, fields.strings("adapters", max_patterns));
  } else {
    fields.accept({"adapters"});
  }
  MOTLEY_TRY_VOID(fields.finish());
  key.holder = std::make_shared<const Principal>(std::move(holder));
  return key;
}

}  // namespace

Result<ApiKeys> ApiKeys::load(const std::filesystem::path& file) {
  MOTLEY_TRY(const std::string text, read_text(file, max_bytes));
  ApiKeys keys;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = std::string_view(text).substr(begin, end - begin);
    // Header values have no trailing blanks, so a key with one would never match.
    line = line.substr(0, line.find_last_not_of(" \t\r") + 1);
    if (!line.empty() && !line.starts_with('#')) keys.keys_.push_back({.text = std::string(line)});
    begin = end + 1;
  }
  if (keys.keys_.empty())
    return no_keys(file.string(), "write a key a line, or leave the option out");
  return keys;
}

Result<ApiKeys> ApiKeys::load_holders(const std::filesystem::path& file) {
  MOTLEY_TRY(const std::string text, read_text(file, max_bytes));
  return parse_holders(text, file.string());
}

Result<ApiKeys> ApiKeys::parse_holders(std::string_view text, std::string_view where) {
  MOTLEY_TRY(const json::Value value, json::parse(text, where));
  MOTLEY_TRY(const json::Array* const list, value.as_array(where));
  ApiKeys keys;
  for (std::size_t i = 0; i < list->size(); ++i) {
    const std::string place = cat("[", i, "]");
    MOTLEY_TRY(const json::Object* const object, (*list)[i].as_object(cat(where, place)));
    auto key = read_holder(*object, place);
    if (!key.ok()) return std::move(key).error().as(ErrorCode::bad_file).within(where);
    const Principal& holder = *key->holder;
    const auto same = std::ranges::find_if(
        keys.keys_, [&](const Key& each) { return each.holder->name == holder.name; });
    if (same != keys.keys_.end() && *same->holder != holder)
      return Error(ErrorCode::bad_file,
                   cat("another weight or other adapters for ", quote(holder.name)),
                   cat(where, ", ", place), "write the same for all keys of one name");
    ApiKeys one;
    one.keys_.push_back(*std::move(key));
    if (auto added = keys.add(std::move(one)); !added.ok())
      return std::move(added).error().within(cat(where, ", ", place));
  }
  if (keys.keys_.empty())
    return no_keys(where, R"(write [{"key": "...", "name": "..."}], or leave the option out)");
  return keys;
}

Result<void> ApiKeys::add(ApiKeys others) {
  const std::size_t count = keys_.size();
  for (Key& each : others.keys_) {
    const auto before = std::span(keys_).first(count);
    if (std::ranges::find(before, each.text, &Key::text) != before.end())
      return Error(ErrorCode::bad_file, "a key that stands twice", "", "give each key once");
    keys_.push_back(std::move(each));
  }
  return {};
}

const ApiKeys::Key* ApiKeys::holds(std::string_view given) const {
  const Key* found = nullptr;
  for (const Key& key : keys_)
    if (equal_in_constant_time(key.text, given)) found = &key;
  return found;
}

const ApiKeys::Key* ApiKeys::find(std::string_view authorization, std::string_view api_key) const {
  if (const Key* const key = holds(api_key)) return key;
  const bool bearer =
      authorization.size() >= scheme.size() &&
      std::ranges::equal(authorization.substr(0, scheme.size()), scheme,
                         [](char given, char wanted) {
                           return std::tolower(static_cast<unsigned char>(given)) == wanted;
                         });
  return bearer ? holds(authorization.substr(scheme.size())) : nullptr;
}

}  // namespace motley::server
