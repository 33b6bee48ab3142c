#include "dist/meetings.h"

#include <thread>

namespace motley::dist {

int Meetings::come(int rank, FunctionRef<bool()> goes_on) {
  constexpr int looks_between_questions = 256;
  constexpr int looks_without_rest = 4096;
  const std::uint64_t own =
      come_[static_cast<std::size_t>(rank)].times.fetch_add(1, std::memory_order_acq_rel) + 1;
  int looks = 0;
  for (std::size_t other = 0; other < come_.size(); ++other) {
    while (come_[other].times.load(std::memory_order_acquire) < own) {
      if (++looks > looks_without_rest) std::this_thread::yield();
      if (looks % looks_between_questions == 0 && !goes_on()) return static_cast<int>(other);
    }
  }
  return -1;
}

}  // namespace motley::dist
