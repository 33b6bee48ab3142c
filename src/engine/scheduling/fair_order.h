#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <string>
#include <unordered_map>

#include "engine/request.h"

namespace motley::engine {

// The order of sequences: by priority, then by tag, then by arrival.
struct Order {
  int priority = 0;
  std::uint64_t tag = 0;
  RequestId request = 0;
  int choice = 0;

  friend std::strong_ordering operator<=>(const Order& a, const Order& b) {
    if (a.priority != b.priority) return b.priority <=> a.priority;
    if (a.tag != b.tag) return a.tag <=> b.tag;
    if (a.request != b.request) return a.request <=> b.request;
    return a.choice <=> b.choice;
  }
  friend bool operator==(const Order& a, const Order& b) { return (a <=> b) == 0; }
};

// Start-time fair queueing over flows: each flow gets the same number of tokens, so that a flow of
// many requests waits behind others with few. A flow is a list of adapters; an idle flow saves up
// nothing.
class FairOrder {
 public:
  // A request of a flow; returns its tag. `cost` is in tokens.
  std::uint64_t arrive(const std::string& flow, std::uint64_t cost) {
    if (ends_.size() >= sweep_at_) sweep();
    std::uint64_t& end = ends_[flow];
    const std::uint64_t begin = std::max(now_, end);
    end = begin + cost;
    return begin;
  }

  // The request of that tag begins to run.
  void begin(std::uint64_t tag) { now_ = std::max(now_, tag); }

  std::size_t flows() const { return ends_.size(); }

 private:
  // Removes flows that are not ahead of the others.
  void sweep() {
    std::erase_if(ends_, [this](const auto& flow) { return flow.second <= now_; });
    sweep_at_ = std::max<std::size_t>(least_swept, 2 * ends_.size());
  }

  static constexpr std::size_t least_swept = 1024;

  std::unordered_map<std::string, std::uint64_t> ends_;  // where the flow's next request begins
  std::uint64_t now_ = 0;
  std::size_t sweep_at_ = least_swept;
};

}  // namespace motley::engine
