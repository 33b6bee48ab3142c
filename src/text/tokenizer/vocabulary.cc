#include "text/tokenizer/vocabulary.h"

#include <algorithm>
#include <bit>

#include "base/cat.h"
#include "text/tokenizer/hash.h"

namespace motley::text {

Result<Vocabulary> Vocabulary::parse(const json::Value& section, std::string_view where) {
  MOTLEY_TRY(const json::Object* object, section.as_object(where));
  Vocabulary vocabulary;
  vocabulary.count_ = object->size();
  vocabulary.slots_.assign(std::bit_ceil(2 * object->size() + 1), -1);
  const std::size_t mask = vocabulary.slots_.size() - 1;
  for (const json::Member& member : object->members()) {
    const std::string& token = member.key;
    MOTLEY_TRY(const std::int64_t id, member.value.as_integer(cat(where, ", ", quote(token))));
    if (id < 0 || id >= max_token_ids)
      return Error(ErrorCode::bad_file, cat("the token ", quote(token), " has the id ", id),
                   std::string(where), cat("ids are 0 to ", max_token_ids - 1));
    const auto at = static_cast<std::size_t>(id);
    if (at >= vocabulary.by_id_.size()) vocabulary.by_id_.resize(at + 1);
    Place& place = vocabulary.by_id_[at];
    if (place.offset != absent)
      return Error(ErrorCode::bad_file,
                   cat("the tokens ", quote(vocabulary.text(place)), " and ", quote(token),
                       " both have the id ", id),
                   std::string(where), "give each token an id of its own");
    place = {.offset = static_cast<std::uint32_t>(vocabulary.characters_.size()),
             .size = static_cast<std::uint32_t>(token.size())};
    vocabulary.characters_ += token;
    std::size_t slot = hash_bytes(token) & mask;
    while (vocabulary.slots_[slot] >= 0) slot = (slot + 1) & mask;
    vocabulary.slots_[slot] = static_cast<std::int32_t>(id);
  }
  return vocabulary;
}

std::optional<std::int32_t> Vocabulary::find(std::string_view token) const {
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t slot = hash_bytes(token) & mask; slots_[slot] >= 0; slot = (slot + 1) & mask)
    if (text(by_id_[static_cast<std::size_t>(slots_[slot])]) == token) return slots_[slot];
  return std::nullopt;
}

std::optional<std::string_view> Vocabulary::token(std::int32_t id) const {
  if (id < 0 || id >= end()) return std::nullopt;
  const Place place = by_id_[static_cast<std::size_t>(id)];
  if (place.offset == absent) return std::nullopt;
  return text(place);
}

}  // namespace motley::text
