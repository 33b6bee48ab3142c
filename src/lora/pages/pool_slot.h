#pragma once

#include <cstdint>
#include <vector>

#include "lora/pages/pool.h"

namespace motley::lora {

// One adapter of the pool: what readers see, and the pages that it owns.
struct Pool::Slot {
  Resident resident;
  State state = State::loading;
  bool replaced = false;  // another adapter has taken over the name
  std::vector<Run> runs;
  std::uint64_t pages = 0;
  // While it is idle: those that have been idle for longer and shorter.
  bool idle = false;
  Slot* before = nullptr;
  Slot* after = nullptr;
  std::uint64_t last_mark = 0;  // the mark of its readers when its last handle was released
  std::vector<Handle> other_ranks;
};

}  // namespace motley::lora
