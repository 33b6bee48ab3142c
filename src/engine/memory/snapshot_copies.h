#pragma once

#include <algorithm>
#include <cstdint>
#include <ranges>
#include <vector>

#include "base/function_ref.h"
#include "engine/memory/snapshot_places.h"
#include "runner/state_plan.h"

namespace motley::engine {

// Copies of snapshots under way: offloads, from a place on the device to one on the host, and
// loads, from a place on the host to a sequence's slot. Copies have ascending numbers and end in
// their order. The places that a copy reads or writes are held until it has ended.
class SnapshotCopies {
 public:
  // The places must outlive it.
  SnapshotCopies(SnapshotPlaces* places, SnapshotPlaces* host_places)
      : places_(places), host_places_(host_places) {}

  // Memory for so many at once: none of the calls below allocates.
  void reserve(std::int64_t copies) { copies_.reserve(static_cast<std::size_t>(copies)); }

  bool may_offload() const { return offloads_ != runner::max_state_offloads; }
  void begin_offload(std::int32_t place, std::int32_t host_place, std::uint64_t number) {
    places_->hold(place);
    host_places_->hold(host_place);
    copies_.push_back({.number = number, .from = place, .host_place = host_place});
    ++offloads_;
  }
  void begin_load(std::int32_t host_place, std::uint64_t number) {
    copies_.push_back({.number = number, .host_place = host_place});
    host_places_->hold(host_place);
  }
  // Copies up to this one have ended. Calls offloaded(place, host_place) for the offloads of them.
  void end(std::uint64_t number,
           FunctionRef<void(std::int32_t place, std::int32_t host_place)> offloaded) {
    const auto left =
        std::ranges::find_if(copies_, [&](const Copy& each) { return each.number > number; });
    for (const Copy& each : std::ranges::subrange(copies_.begin(), left)) {
      host_places_->release(each.host_place);
      if (each.is_load()) continue;
      --offloads_;
      places_->release(each.from);
      offloaded(each.from, each.host_place);
    }
    copies_.erase(copies_.begin(), left);
  }

  std::int64_t offloads() const { return offloads_; }
  bool is_consistent() const {
    return std::ranges::is_sorted(copies_, {}, &Copy::number) &&
           std::ranges::count_if(copies_, [](const Copy& each) { return !each.is_load(); }) ==
               offloads_;
  }

 private:
  struct Copy {
    std::uint64_t number = 0;
    std::int32_t from = SnapshotPlaces::none;  // a place on the device; none: a load
    std::int32_t host_place = 0;

    bool is_load() const { return from == SnapshotPlaces::none; }
  };

  SnapshotPlaces* places_;
  SnapshotPlaces* host_places_;
  std::vector<Copy> copies_;
  std::int64_t offloads_ = 0;
};

}  // namespace motley::engine
