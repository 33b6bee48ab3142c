#pragma once

#include <cstdint>

namespace motley {

// What the system says of this process; 0 where it says nothing.
struct ProcessFigures {
  double cpu_seconds = 0;    // of user and system, all threads together
  double start_seconds = 0;  // since the epoch
  std::uint64_t resident_bytes = 0;
  std::uint64_t virtual_bytes = 0;
  std::uint64_t threads = 0;
  std::uint64_t open_files = 0;
  std::uint64_t max_files = 0;
};

ProcessFigures process_figures();

}  // namespace motley
