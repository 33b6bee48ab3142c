#pragma once

#include <cstddef>
#include <memory>

#include "base/system/out_of_memory.h"
#include "engine/residency/adapter_entry.h"
#include "engine/stats/stats.h"

namespace motley::engine {

// The traffic of adapters: up to a limit each is counted by itself, the others together.
class TrafficCounters {
 public:
  explicit TrafficCounters(std::size_t limit) : limit_(limit) {}

  // If memory is short, it is counted with the others until the next call.
  void count_apart(AdapterEntry& entry) {
    if (entry.traffic != nullptr || apart_ >= limit_) return;
    const Result<void> made =
        within_memory([&] { entry.traffic = std::make_unique<AdapterTraffic>(); });
    if (made.ok()) ++apart_;
  }
  // For an adapter that is unloaded.
  void forget(const AdapterEntry& entry) {
    if (entry.traffic != nullptr) --apart_;
  }

  // Where its requests are counted. Does not allocate.
  AdapterTraffic& of(const AdapterEntry& entry) {
    return entry.traffic != nullptr ? *entry.traffic : others_;
  }
  const AdapterTraffic& others() const { return others_; }

 private:
  std::size_t limit_;
  std::size_t apart_ = 0;  // adapters that are counted by themselves
  AdapterTraffic others_;
};

}  // namespace motley::engine
