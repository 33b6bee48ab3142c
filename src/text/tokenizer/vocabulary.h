#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/json.h"
#include "base/result.h"

namespace motley::text {

// The limit of ids, which keeps tables by id small even if a file is damaged.
inline constexpr std::int64_t max_token_ids = 1 << 22;

// The tokens of a model, without added tokens.
class Vocabulary {
 public:
  // From an object of token -> id. Ids must be unique; some may be unused.
  static Result<Vocabulary> parse(const json::Value& section, std::string_view where);

  std::optional<std::int32_t> find(std::string_view token) const;
  std::optional<std::string_view> token(std::int32_t id) const;

  // The number of tokens, and the largest id plus one.
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
  std::vector<std::int32_t> slots_;  // ids by hash of the token, -1 if empty; a power of two
  std::size_t count_ = 0;
};

}  // namespace motley::text
