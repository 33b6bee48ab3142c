#include "text/tokenizer/config_tokens.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/cat.h"

namespace motley::text {
namespace {

constexpr std::array<std::string_view, 5> flags = {"single_word", "lstrip", "rstrip", "normalized",
                                                   "special"};

// The text of a token, or null if the entry has none.
const std::string* content_of(const json::Value& token) {
  const json::Object* const object = token.if_object();
  const json::Value* const content = object == nullptr ? nullptr : object->find("content");
  return content == nullptr ? nullptr : content->if_string();
}

// An entry in the form of tokenizer.json; missing flags are off, as in transformers.
Result<json::Value> entry(std::int64_t id, const json::Value& token, std::string_view where) {
  MOTLEY_TRY(const json::Object* const object, token.as_object(where));
  json::Object written{{"id", id}};
  const json::Value* const content = object->find("content");
  if (content == nullptr)
    return Error(ErrorCode::bad_file, "a token without content", std::string(where),
                 "write the token's text as content");
  written.add("content", *content);
  const json::Value* const special = object->find("special");
  const bool is_special =
      special != nullptr && special->if_boolean() != nullptr && *special->if_boolean();
  for (const std::string_view flag : flags) {
    const json::Value* const value = object->find(flag);
    const bool otherwise = flag == "normalized" && !is_special;
    written.add(std::string(flag), value == nullptr ? json::Value(otherwise) : *value);
  }
  return json::Value(std::move(written));
}

Result<std::int64_t> read_id(std::string_view text, std::string_view where) {
  std::int64_t id = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), id);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() || id < 0)
    return Error(ErrorCode::bad_file, cat(quote(text), " is no token id"), std::string(where),
                 "name each token by its id");
  return id;
}

}  // namespace

Result<json::Value> with_config_tokens(const json::Value* added_tokens, const json::Value& config,
                                       std::string_view where) {
  const json::Value standing = added_tokens == nullptr ? json::Value() : *added_tokens;
  MOTLEY_TRY(const json::Object* const object, config.as_object(where));
  const json::Value* const decoder = object->find_set("added_tokens_decoder");
  if (decoder == nullptr) return standing;
  const std::string place = cat(where, ", added_tokens_decoder");
  MOTLEY_TRY(const json::Object* const entries, decoder->as_object(place));

  json::Array merged = standing.if_array() == nullptr ? json::Array() : *standing.if_array();
  std::map<std::int64_t, json::Value> more;
  for (const json::Member& member : entries->members()) {
    const std::string token_place = cat(place, ", ", member.key);
    MOTLEY_TRY(const std::int64_t id, read_id(member.key, place));
    const std::string* const content = content_of(member.value);
    const auto same = [&](const json::Value& token) {
      const std::string* const other = content_of(token);
      return content != nullptr && other != nullptr && *other == *content;
    };
    const auto at = std::ranges::find_if(merged, same);
    if (at == merged.end()) {
      MOTLEY_TRY(json::Value token, entry(id, member.value, token_place));
      more.emplace(id, std::move(token));
      continue;
    }
    const json::Value* const known_id = at->if_object()->find("id");
    if (known_id == nullptr || known_id->if_integer() == nullptr) continue;  // refused when read
    if (*known_id->if_integer() != id)
      return Error(ErrorCode::bad_file,
                   cat("the added token ", quote(*content), " has the id ", id, ", and ",
                       *known_id->if_integer(), " in tokenizer.json"),
                   token_place, "save the tokenizer again, so that both files agree");
    MOTLEY_TRY(*at, entry(id, member.value, token_place));
  }
  for (auto& [id, token] : more) merged.push_back(std::move(token));
  return json::Value(std::move(merged));
}

}  // namespace motley::text
