#include "base/system/memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

namespace motley {
namespace {

namespace fs = std::filesystem;

// The number after a key in lines of "key number ...".
std::optional<std::uint64_t> number_of(const fs::path& path, std::string_view wanted) {
  std::ifstream file(path);
  std::string key;
  std::uint64_t number = 0;
  while (file >> key >> number) {
    if (key == wanted) return number;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return std::nullopt;
}

std::optional<std::uint64_t> number_in(const fs::path& path) {
  std::uint64_t number = 0;
  if (std::ifstream file(path); file >> number) return number;
  return std::nullopt;
}

struct GroupFiles {
  fs::path limit;
  fs::path usage;
  fs::path statistics;
  std::string_view cache;  // memory that the kernel reclaims before it refuses allocations
};

// Only files of the own control group are read: inside a container they are the container's.
std::optional<MachineMemory> group_memory(const GroupFiles& files) {
  // Without limit it is "max", or in older control groups a huge number.
  const auto limit = number_in(files.limit);
  if (!limit) return std::nullopt;
  const std::uint64_t usage = number_in(files.usage).value_or(0);
  const std::uint64_t cache = number_of(files.statistics, files.cache).value_or(0);
  const std::uint64_t held = usage - std::min(usage, cache);
  return MachineMemory{.total = *limit, .available = *limit - std::min(*limit, held)};
}

}  // namespace

Result<MachineMemory> machine_memory(const fs::path& proc, const fs::path& control_group) {
  const fs::path file = proc / "meminfo";
  const auto total = number_of(file, "MemTotal:");
  const auto available = number_of(file, "MemAvailable:");
  if (!total || !available)
    return Error(ErrorCode::io, "can't tell how much memory there is", file.string(),
                 "give the sizes by hand (--kv-memory, --adapter-memory)");
  MachineMemory memory{.total = *total << 10, .available = *available << 10};
  const fs::path older = control_group / "memory";
  for (const GroupFiles& files :
       {GroupFiles{control_group / "memory.max", control_group / "memory.current",
                   control_group / "memory.stat", "inactive_file"},
        GroupFiles{older / "memory.limit_in_bytes", older / "memory.usage_in_bytes",
                   older / "memory.stat", "total_inactive_file"}}) {
    if (const auto group = group_memory(files)) {
      memory.total = std::min(memory.total, group->total);
      memory.available = std::min(memory.available, group->available);
    }
  }
  return memory;
}

}  // namespace motley
