#pragma once

#include <cstdint>

// When a sequence may begin, as pure arithmetic.
namespace motley::engine {

// What a sequence needs to begin.
struct Need {
  std::int64_t pages = 0;  // for all its tokens so far and the next one
  std::int64_t found = 0;  // of these, blocks that are in the cache
  std::int64_t idle = 0;   // of the found ones, those that no sequence owns
};

struct Room {
  std::int64_t available = 0;  // pages, free or cached
  // Pages by which the running sequences and the new one may grow before one must be preempted: see
  // GrowthReserve.
  std::int64_t growth = 0;
  std::int64_t running = 0;  // sequences
  std::int64_t max_running = 0;
};

// Pages that must stay available after an admission. A single sequence needs none.
constexpr std::int64_t reserve(const Room& room) { return room.running == 0 ? 0 : room.growth; }

// How many pages ahead are provided for each running sequence, of those that it may still need.
// Normally one; after preemptions for lack of pages twice as many, up to `max_pages`, and half as
// many after `calm_steps` without one. So a sequence begins only if it can continue for a while,
// but no pages are kept for answers that end early.
class GrowthReserve {
 public:
  static constexpr std::int64_t max_pages = 4;
  static constexpr std::int64_t calm_steps = 256;

  constexpr std::int64_t pages() const { return pages_; }

  // Call after every step.
  constexpr void learn(bool preempted) {
    if (preempted) {
      pages_ = pages_ < max_pages ? 2 * pages_ : max_pages;
      calm_ = 0;
    } else if (++calm_ == calm_steps) {
      pages_ = pages_ > 1 ? pages_ / 2 : 1;
      calm_ = 0;
    }
  }

  // For a sequence that has `held` pages and needs `in_all` unless it ends early.
  constexpr std::int64_t growth(std::int64_t held, std::int64_t in_all) const {
    const std::int64_t left = in_all - held;
    return left < 1 ? 1 : left < pages_ ? left : pages_;
  }

 private:
  std::int64_t pages_ = 1;
  std::int64_t calm_ = 0;
};

// What is missing for the sequence to begin; it may begin if both are 0.
struct Shortage {
  std::int64_t pages = 0;
  std::int64_t sequences = 0;

  constexpr bool none() const { return pages == 0 && sequences == 0; }
  friend bool operator==(const Shortage&, const Shortage&) = default;
};

constexpr Shortage shortage(const Need& need, const Room& room) {
  const std::int64_t taken = need.pages - need.found + need.idle;
  const std::int64_t pages = taken + reserve(room) - room.available;
  const std::int64_t sequences = room.running + 1 - room.max_running;
  return {.pages = pages > 0 ? pages : 0, .sequences = sequences > 0 ? sequences : 0};
}

// The longest sequence that can run, if necessary alone.
constexpr std::int64_t longest_sequence(std::int64_t sequence_tokens, std::int64_t pages,
                                        std::int64_t page_tokens) {
  const std::int64_t held = pages * page_tokens;
  return sequence_tokens < held ? sequence_tokens : held;
}

}  // namespace motley::engine
