#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/system/clock.h"
#include "engine/residency/residency.h"
#include "engine/sequences/adapter_line.h"
#include "engine/sequences/clients.h"
#include "engine/sequences/sequence.h"

namespace motley::engine {

// The sequences that wait, and which of them begins next: clients take turns, and the requests of
// each stand by Order. Those that wait for adapters stand in a line of their own.
class WaitingQueue {
 public:
  using Place = WaitingSequences::node_type;

  struct Rules {
    Duration adapter_patience{};
    std::int64_t sequences = 0;  // of a step
  };
  explicit WaitingQueue(const Rules& rules) : rules_(rules) {}
  WaitingQueue(const WaitingQueue&) = delete;
  WaitingQueue& operator=(const WaitingQueue&) = delete;

  bool empty() const { return waiting_.empty(); }
  std::size_t size() const { return waiting_.size(); }
  const WaitingSequences& all() const { return waiting_; }
  // Says of each sequence whether it is paused: paused ones get no adapters.
  template <class Predicate>
  void note_pauses(Predicate is_paused) {
    for (auto& [order, waiting] : waiting_) waiting.paused = is_paused(waiting);
  }
  // Calls visit(sequence, claim) for each that has a claim.
  template <class Visit>
  void each_claim(Visit visit) {
    for (auto& [order, waiting] : waiting_) {
      if (waiting.claim) visit(waiting.sequence, *waiting.claim);
    }
  }
  // Those whose adapters are not ready.
  std::int64_t without_adapters() const;

  // Does not allocate.
  void add(Place place, WaitingSequence waiting);
  template <class Predicate>
  void remove_if(Predicate predicate) {
    changed_ = true;
    std::erase_if(waiting_, [&](const auto& each) { return predicate(each.second); });
  }

  // A waiting sequence, in the order in which sequences begin.
  struct QueueEntry {
    std::uint64_t turn = 0;
    std::uint64_t client = 0;
    std::uint32_t place = 0;  // index by Order
    WaitingSequences::iterator at;

    WaitingSequence& sequence() const { return at->second; }
  };
  // Brings in_order() up to date. If memory runs out there are none, and the next call tries again.
  void order(const Clients& clients);
  // Valid until the next order(), but for sequences that were removed or have begun.
  std::span<const QueueEntry> in_order() const { return in_order_; }
  // The sequence begins.
  Place take(const QueueEntry& entry);
  void forget_order() { in_order_.clear(); }

  // Grants claims to sequences that wait for adapters: in order of the line as far as adapters fit,
  // and closes others where it is worth it. If memory runs out, it grants some.
  void give_adapters(Residency& residency, TimePoint now);

  // The number of sequences of each client at the last order() that found a change.
  const std::unordered_map<std::string, std::int64_t>& by_client() const { return by_client_; }
  // Grows whenever by_client() changes.
  std::uint64_t changes() const { return changes_; }

 private:
  void try_order(const Clients& clients);
  void try_give_adapters(Residency& residency, TimePoint now);
  // Those that want adapters without a claim ask for them; claims of the base are given.
  void form_line(Residency& residency, TimePoint now);
  void make_room_for(const AdapterDemand& demand, Residency& residency);
  void take_claims_back(TimePoint now);

  Rules rules_;
  WaitingSequences waiting_;
  std::vector<QueueEntry> in_order_;
  bool changed_ = false;  // since order()
  std::unordered_map<std::string, std::int64_t> by_client_;
  std::uint64_t changes_ = 0;
  AdapterLine line_;  // empty between calls
};

}  // namespace motley::engine
