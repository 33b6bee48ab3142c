#pragma once

#include <compare>
#include <cstdint>

#include "engine/requests/request.h"

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

}  // namespace motley::engine
