#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace motley {

// The memory limit of one control group.
struct CgroupMemory {
  std::string path;         // as in /proc/self/cgroup: "/system.slice/motley.service"
  std::uint64_t limit = 0;  // bytes
  std::uint64_t used = 0;   // bytes that the kernel can't reclaim
};

// The limits that apply to this process: of its own control group and of each parent up to the
// mount, in version 2 (memory.max, memory.high) and in version 1 (memory.limit_in_bytes). Groups
// without a limit are left out. `root` holds proc/self/cgroup, proc/self/mountinfo, and the mount
// points that the latter names.
std::vector<CgroupMemory> cgroup_memory(const std::filesystem::path& root = "/");

}  // namespace motley
