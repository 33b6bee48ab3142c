#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/json.h"
#include "base/result.h"

namespace motley::text {

// Ids are below this, so that tables by id stay small however damaged a file is.
inline constexpr std::int64_t max_token_ids = 1 << 22;

// The tokens of a model, without those that were added to it.
class Vocabulary {
 public:
  // From an object of token -> id. No two tokens share an id; ids may leave holes.
  static Result<Vocabulary> parse(const json::Value& section, std::string_view where);

  std::optional<std::int32_t> find(std::string_view token) const;
  std::optional<std::string_view> token(std::int32_t id) const;

  // How many tokens there are, and one more than the largest id.
  std::size_t count() const { return count_; }
  std::int32_t end() const { return static_cast<std::int32_t>(by_id_.size()); }

 private:
  static constexpr std::uint32_t absent = 0xFFFF'FFFF;
  struct Place {
    std::uint32_t offset = absent;
    std::uint32_t size = 0;
  };

  std::string_view text(Place place) const {
    return std::string_view(characters_).substr(place.offset, place.size);
  }

  std::string characters_;  // of all tokens
  std::vector<Place> by_id_;
  std::vector<std::int32_t> slots_;  // ids by hash of the token, -1 where empty; a power of two
  std::size_t count_ = 0;
};

}  // namespace motley::text
