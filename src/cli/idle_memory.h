#pragma once

#include <cstdint>

#include "base/system/clock.h"

// Returns memory of heavy requests to the system.
namespace motley::cli {

// Configures the allocator for that: large blocks are mapped individually, and threads share few
// arenas. Call before threads start.
void prepare_memory_return();

// Decides when to return free memory: once after requests were served, when there has been none for
// a second, and at most every few seconds.
class IdleMemory {
 public:
  static constexpr Duration rest = std::chrono::seconds(1);
  static constexpr Duration pause = std::chrono::seconds(5);

  // `begun`: requests that have ever begun; `works`: whether any is running. True: return memory
  // now.
  bool is_time(std::uint64_t begun, bool works, TimePoint now);

 private:
  std::uint64_t begun_ = 0;     // at the last call
  std::uint64_t returned_ = 0;  // for which memory has been returned
  TimePoint busy_{};            // last
  TimePoint last_{};            // when memory was last returned
};

// Returns all free memory. Takes time proportional to it, so it is for a thread that serves no
// requests.
void return_memory();

}  // namespace motley::cli
