#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/residency/residency.h"
#include "engine/scheduling/sequence.h"

namespace motley::engine {

// The waiting sequences that want the same adapters and have no claim on them.
struct Want {
  std::span<AdapterEntry* const> adapters;
  WaitingSequence* first = nullptr;  // of these sequences
  int priority = 0;                  // the highest
  bool in_line = false;              // room is being made for them
  Duration waited{};                 // all of them together
  double urgency = 0;                // the sum of the squares of what each has waited, weighed
  std::int32_t next = -1;            // another want that begins with the same adapter
};

// The sequences that want adapters, in the order in which they get them: those that were promised
// room, by priority, and by urgency. It grows with how many wait, so that what is asked for often
// comes back sooner and is shared by many each time; and faster with how long they do, so that none
// is forgotten. All sequences of a client weigh as much together as those of another. It is filled
// and cleared while no sequence comes or goes.
class AdapterLine {
 public:
  void clear() {
    for (const Want& want : wants_) want.adapters.front()->want = -1;
    wants_.clear();
  }

  // How a sequence counts beside those of other clients.
  struct Weight {
    bool priority = true;  // its priority counts: all that wait are one client's
    double urgency = 1;    // one over the number of the client's sequences
  };

  // A sequence with adapters that has asked for them.
  void add(WaitingSequence& waiting, TimePoint now, const Weight& weight) {
    Want& want = find(waiting);
    const Duration waited = now - *waiting.asked;
    if (weight.priority)
      want.priority = std::max(want.priority, waiting.sequence.job->request.priority);
    want.in_line = want.in_line || waiting.in_line;
    want.waited += waited;
    want.urgency += seconds(waited) * seconds(waited) * weight.urgency;
  }

  // Nothing is added afterwards.
  std::span<const Want> sorted() {
    std::ranges::sort(wants_, [](const Want& a, const Want& b) {
      if (a.in_line != b.in_line) return a.in_line;
      if (a.priority != b.priority) return a.priority > b.priority;
      if (a.urgency != b.urgency) return a.urgency > b.urgency;
      return a.first->sequence.order() < b.first->sequence.order();
    });
    return wants_;
  }

 private:
  Want& find(WaitingSequence& waiting) {
    const auto adapters = waiting.sequence.job->adapters.entries();
    AdapterEntry& first = *adapters.front();
    for (std::int32_t at = first.want; at >= 0;) {
      Want& want = wants_[static_cast<std::size_t>(at)];
      if (std::ranges::equal(want.adapters, adapters)) return want;
      at = want.next;
    }
    wants_.push_back({.adapters = adapters, .first = &waiting, .next = first.want});
    first.want = static_cast<std::int32_t>(wants_.size()) - 1;
    return wants_.back();
  }

  std::vector<Want> wants_;
};

}  // namespace motley::engine
