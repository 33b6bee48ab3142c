#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "text/tokenizer/hash.h"

namespace motley::text {

// A direct-mapped cache of the ids of recent words: short words of few tokens, one per cache line.
// Its memory is bounded.
class WordCache {
 public:
  WordCache() : slots_(slot_count) {}

  static bool can_hold(std::string_view word) { return word.size() <= max_bytes; }

  // The slot of a word that fits.
  std::size_t slot_of(std::string_view word) const { return hash_bytes(word) & (slot_count - 1); }

  // Empty if the word is not cached; a word always has a token.
  std::span<const std::int32_t> find(std::size_t slot, std::string_view word) const {
    const Slot& held = slots_[slot];
    if (held.size != word.size() || std::memcmp(held.word, word.data(), word.size()) != 0)
      return {};
    return {held.ids, held.count};
  }

  // Caches a word if it has few enough tokens.
  void put(std::size_t slot, std::string_view word, std::span<const std::int32_t> ids) {
    if (ids.size() > max_ids) return;
    Slot& held = slots_[slot];
    held.size = static_cast<std::uint8_t>(word.size());
    held.count = static_cast<std::uint8_t>(ids.size());
    std::ranges::copy(word, held.word);
    std::ranges::copy(ids, held.ids);
  }

 private:
  static constexpr std::size_t slot_count = 1 << 15;  // 2 MiB
  static constexpr std::size_t max_bytes = 22;
  static constexpr std::size_t max_ids = 10;
  struct alignas(64) Slot {
    std::uint8_t size = 0;
    std::uint8_t count = 0;
    char word[max_bytes] = {};
    std::int32_t ids[max_ids] = {};
  };
  static_assert(sizeof(Slot) == 64);

  std::vector<Slot> slots_;
};

}  // namespace motley::text
