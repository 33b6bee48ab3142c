#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/result.h"

namespace motley {

struct MachineMemory {
  std::uint64_t total = 0;
  std::uint64_t available = 0;
  // What leaves so little available: "the machine", "the cgroup /system.slice/motley.service",
  // "RLIMIT_AS" or "RLIMIT_DATA".
  std::string bound = "the machine";
};

// The memory that this process may use: the smallest of the machine's, that of its control group
// and of each parent (cgroup_memory.h), and its own limits (ulimit -v, ulimit -d). A group's page
// cache counts as available, as the machine's does. `root` holds proc and the control groups.
Result<MachineMemory> machine_memory(const std::filesystem::path& root = "/");

// For errors: ", where RLIMIT_AS leaves 512.0 MiB"; empty if it can't be read.
std::string memory_left();

}  // namespace motley
