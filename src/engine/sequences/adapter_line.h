#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/residency/residency.h"
#include "engine/sequences/sequence.h"

namespace motley::engine {

// The waiting sequences that want the same adapters and have no claim on them.
struct AdapterDemand {
  std::span<AdapterEntry* const> adapters;
  WaitingSequence* first = nullptr;  // of these sequences
  int priority = 0;                  // the highest
  bool in_line = false;              // pages are being freed for them
  Duration waited{};                 // summed over all of them
  double urgency = 0;                // the weighted sum of the squares of their waiting times
  std::int32_t next = -1;            // the next demand whose list begins with the same adapter
};

// Demands in the order in which they get adapters: those for which pages are being freed, then by
// priority, then by urgency. Urgency grows with the number of waiting sequences, so that popular
// adapters return sooner and serve many at a time; and with the square of the waiting time, so that
// none starves. All sequences of a client together weigh as much as those of another. Filled and
// cleared while no sequence is added or removed.
class AdapterLine {
 public:
  void clear() {
    for (const AdapterDemand& demand : demands_) demand.adapters.front()->demand = -1;
    demands_.clear();
  }

  // The weight of a sequence relative to those of other clients.
  struct Weight {
    bool priority = true;  // its priority counts, because only one client waits
    double urgency = 1;    // one over the number of the client's sequences
  };

  // Adds a sequence that has asked for its adapters.
  void add(WaitingSequence& waiting, TimePoint now, const Weight& weight) {
    AdapterDemand& demand = find(waiting);
    const Duration waited = now - *waiting.asked;
    if (weight.priority)
      demand.priority = std::max(demand.priority, waiting.sequence.job->request.priority);
    demand.in_line = demand.in_line || waiting.in_line;
    demand.waited += waited;
    demand.urgency += seconds(waited) * seconds(waited) * weight.urgency;
  }

  // Nothing may be added afterwards.
  std::span<const AdapterDemand> sorted() {
    std::ranges::sort(demands_, [](const AdapterDemand& a, const AdapterDemand& b) {
      if (a.in_line != b.in_line) return a.in_line;
      if (a.priority != b.priority) return a.priority > b.priority;
      if (a.urgency != b.urgency) return a.urgency > b.urgency;
      return a.first->sequence.order() < b.first->sequence.order();
    });
    return demands_;
  }

 private:
  AdapterDemand& find(WaitingSequence& waiting) {
    const auto adapters = waiting.sequence.job->adapters.entries();
    AdapterEntry& first = *adapters.front();
    for (std::int32_t at = first.demand; at >= 0;) {
      AdapterDemand& demand = demands_[static_cast<std::size_t>(at)];
      if (std::ranges::equal(demand.adapters, adapters)) return demand;
      at = demand.next;
    }
    demands_.push_back({.adapters = adapters, .first = &waiting, .next = first.demand});
    first.demand = static_cast<std::int32_t>(demands_.size()) - 1;
    return demands_.back();
  }

  std::vector<AdapterDemand> demands_;
};

}  // namespace motley::engine
