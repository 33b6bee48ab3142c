#pragma once

#include <cstdint>
#include <filesystem>

#include "base/result.h"

namespace motley {

struct MachineMemory {
  std::uint64_t total = 0;
  std::uint64_t available = 0;
};

// The memory that this process may use: the machine's, or its container's if that is less. A
// container's page cache counts as available, as the machine's does.
Result<MachineMemory> machine_memory(const std::filesystem::path& proc = "/proc",
                                     const std::filesystem::path& control_group = "/sys/fs/cgroup");

}  // namespace motley
