#pragma once

#include <cstdint>

#include "base/system/clock.h"

// The memory that heavy requests took goes back to the system.
namespace motley::cli {

// Sets the allocator up for it: large blocks are mapped one by one, threads share few arenas. To be
// called before threads start.
void prepare_memory_return();

// When to give free memory back: once after requests were served, when none has been for a second,
// and not again within a few.
class IdleMemory {
 public:
  static constexpr Duration rest = std::chrono::seconds(1);
  static constexpr Duration pause = std::chrono::seconds(5);

  // Looks at a server that has begun so many requests ever, and works on some or not. True: now is
  // the time.
  bool is_time(std::uint64_t begun, bool works, TimePoint now);

 private:
  std::uint64_t begun_ = 0;     // at the last look
  std::uint64_t returned_ = 0;  // of which memory has been given back
  TimePoint busy_{};            // last
  TimePoint last_{};            // memory was given back
};

// Gives all free memory back. Takes as long as there is memory to walk through: for a thread that
// serves no request.
void return_memory();

}  // namespace motley::cli
