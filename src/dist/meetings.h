#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/function_ref.h"

namespace motley::dist {

// Threads of ranks that wait for each other, as often as they come. They come about together, so a
// wait spins at first. It takes no lock.
class Meetings {
 public:
  explicit Meetings(int ranks) : come_(static_cast<std::size_t>(ranks)) {}

  // Waits until every rank has come as often as this one. Asks `goes_on` every few microseconds;
  // the rank that is missing when it declines, or -1.
  int come(int rank, FunctionRef<bool()> goes_on);

 private:
  // One writes it, all read it.
  struct alignas(64) Count {
    std::atomic<std::uint64_t> times{0};
  };
  std::vector<Count> come_;
};

}  // namespace motley::dist
