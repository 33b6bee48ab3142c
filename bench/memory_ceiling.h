#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/system/clock.h"
#include "base/system/thread_pool.h"
#include "kernels/read_memory.h"

namespace motley::bench {

// What all threads of a pool together read from memory in a second.
class MemoryCeiling {
 public:
  explicit MemoryCeiling(ThreadPool& pool) : pool_(pool), lines_(bytes / sizeof(Line)) {}

  // The best of several reads, in bytes a second: on a machine that others use too, it drifts.
  double measure(int runs) {
    const SteadyClock clock;
    double best = 0;
    for (int run = 0; run < runs; ++run) {
      const TimePoint start = clock.now();
      kernels::cpu::read_memory({.data = lines_.data(), .units = units, .sums = sums_.data()},
                                {.native = &pool_});
      best = std::max(best, static_cast<double>(bytes) / seconds(clock.now() - start));
    }
    return best;
  }

 private:
  static constexpr std::int64_t bytes = std::int64_t{1} << 30;
  static constexpr std::int64_t units = bytes / kernels::ReadMemory::unit;

  struct alignas(64) Line {
    std::uint64_t numbers[8] = {1, 1, 1, 1, 1, 1, 1, 1};
  };

  ThreadPool& pool_;
  std::vector<Line> lines_;
  std::vector<std::uint64_t> sums_ = std::vector<std::uint64_t>(units);
};

}  // namespace motley::bench
