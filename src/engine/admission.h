#pragma once

#include <cstdint>

// When a sequence may begin, as arithmetic on numbers alone.
namespace motley::engine {

// What a sequence takes at its beginning.
struct Need {
  std::int64_t pages = 0;  // for all its tokens so far and the next one
  std::int64_t found = 0;  // of these, blocks that are there
  std::int64_t idle = 0;   // of the found ones, cached: owned by nobody so far
};

struct Room {
  std::int64_t available = 0;  // pages, free or cached
  std::int64_t running = 0;    // sequences
  std::int64_t most_running = 0;
};

// Pages that stay available behind an admission: one for each sequence that runs, the new one
// included, so that they can go on for a while before one must be pushed back. Alone, a sequence
// needs none.
constexpr std::int64_t reserve(const Room& room) {
  return room.running == 0 ? 0 : room.running + 1;
}

// What is missing until the sequence may begin; it may where both are 0.
struct Shortage {
  std::int64_t pages = 0;
  std::int64_t sequences = 0;

  constexpr bool none() const { return pages == 0 && sequences == 0; }
  friend bool operator==(const Shortage&, const Shortage&) = default;
};

constexpr Shortage shortage(const Need& need, const Room& room) {
  const std::int64_t taken = need.pages - need.found + need.idle;
  const std::int64_t pages = taken + reserve(room) - room.available;
  const std::int64_t sequences = room.running + 1 - room.most_running;
  return {.pages = pages > 0 ? pages : 0, .sequences = sequences > 0 ? sequences : 0};
}

// The longest sequence that can run, if need be alone.
constexpr std::int64_t longest_sequence(std::int64_t sequence_tokens, std::int64_t pages,
                                        std::int64_t page_tokens) {
  const std::int64_t held = pages * page_tokens;
  return sequence_tokens < held ? sequence_tokens : held;
}

// Whether adapters of these sizes can come beside what is in use: all in pages.
constexpr bool adapters_fit(std::uint64_t needed, std::uint64_t in_use, std::uint64_t all) {
  return in_use <= all && needed <= all - in_use;
}

}  // namespace motley::engine
