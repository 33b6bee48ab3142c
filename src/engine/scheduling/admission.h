#pragma once

#include <cstdint>

// When a sequence may begin, as arithmetic on numbers alone.
namespace motley::engine {

// What a sequence takes at its beginning.
struct Need {
  std::int64_t pages = 0;  // for all its tokens so far and the next one
  std::int64_t found = 0;  // of these, blocks that are there
  std::int64_t idle = 0;   // of the found ones, cached: owned by no sequence so far
};

struct Room {
  std::int64_t available = 0;  // pages, free or cached
  // Pages that the running sequences, and the new one, are to grow by before one must be
  // preempted: see Foresight.
  std::int64_t growth = 0;
  std::int64_t running = 0;  // sequences
  std::int64_t max_running = 0;
};

// Pages that stay available behind an admission. Alone, a sequence needs none.
constexpr std::int64_t reserve(const Room& room) { return room.running == 0 ? 0 : room.growth; }

// How many pages each running sequence is provided with ahead, of those that it may still take.
// One, as long as that does; where sequences were preempted for want of pages, twice as many, up
// to `most`, and half as many again after `calm_steps` without. So a sequence begins where it can
// go on for a while, without pages being kept for answers that end early.
class Foresight {
 public:
  static constexpr std::int64_t most = 4;
  static constexpr std::int64_t calm_steps = 256;

  constexpr std::int64_t pages() const { return pages_; }

  // After every step.
  constexpr void learn(bool pushed_back) {
    if (pushed_back) {
      pages_ = pages_ < most ? 2 * pages_ : most;
      calm_ = 0;
    } else if (++calm_ == calm_steps) {
      pages_ = pages_ > 1 ? pages_ / 2 : 1;
      calm_ = 0;
    }
  }

  // Of a sequence that holds so many pages and takes so many in all, if it is not ended before.
  constexpr std::int64_t growth(std::int64_t held, std::int64_t in_all) const {
    const std::int64_t left = in_all - held;
    return left < 1 ? 1 : left < pages_ ? left : pages_;
  }

 private:
  std::int64_t pages_ = 1;
  std::int64_t calm_ = 0;
};

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
  const std::int64_t sequences = room.running + 1 - room.max_running;
  return {.pages = pages > 0 ? pages : 0, .sequences = sequences > 0 ? sequences : 0};
}

// The longest sequence that can run, if need be alone.
constexpr std::int64_t longest_sequence(std::int64_t sequence_tokens, std::int64_t pages,
                                        std::int64_t page_tokens) {
  const std::int64_t held = pages * page_tokens;
  return sequence_tokens < held ? sequence_tokens : held;
}

// The queue as a request of one client finds it. Requests wait in it until they begin.
struct Queue {
  std::int64_t places = 0;   // for requests of all clients: --max-queue
  std::int64_t free = 0;     // places in the batch, for requests that need not wait
  std::int64_t waiting = 0;  // requests
  std::int64_t own = 0;      // of these, the client's
  std::int64_t clients = 0;  // that wait, this one included
};

// Whether the request finds a place. One client alone may take all places. Where several wait, each
// has a share that the others cannot take: its requests are accepted up to that share though the
// queue is full. k clients hold at most places x (1 + 1/2 + ... + 1/k) places, or one each.
constexpr bool has_place(const Queue& queue) {
  if (queue.waiting < queue.places + queue.free) return true;
  if (queue.places == 0) return false;
  const std::int64_t share = queue.places / queue.clients;
  return queue.own < (share > 1 ? share : 1);
}

// Whether adapters of these sizes can come beside what is in use: all in pages.
constexpr bool adapters_fit(std::uint64_t needed, std::uint64_t in_use, std::uint64_t all) {
  return in_use <= all && needed <= all - in_use;
}

}  // namespace motley::engine
