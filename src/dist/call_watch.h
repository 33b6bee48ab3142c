#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/system/clock.h"
#include "kernels/staged_ranks.h"

namespace motley::dist {

// Tells from how far each rank's GPU is whether one waits too long in a call: for waits on GPUs
// that have no bound of their own.
class CallWatch {
 public:
  using Progress = kernels::cuda::StagingMemory::Progress;

  CallWatch(int ranks, Duration max_wait)
      : max_wait_(max_wait), waits_(static_cast<std::size_t>(ranks)) {}

  struct Overdue {
    int rank = 0;                // whose call does not end
    std::optional<int> missing;  // that has not come to it
    kernels::RankCall call{};
  };
  // The first rank that has been seen in the same call for longer than max_wait.
  std::optional<Overdue> look(std::span<const Progress> ranks, TimePoint now);

 private:
  struct Wait {
    bool seen = false;
    std::uint32_t begun = 0;
    TimePoint since;
  };
  Duration max_wait_;
  std::vector<Wait> waits_;
};

}  // namespace motley::dist
