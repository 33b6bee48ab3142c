#include "base/system/memory.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "base/cat.h"
#include "base/system/cgroup_memory.h"
#include "base/units.h"

namespace motley {
namespace {

namespace fs = std::filesystem;

// The number after a key in lines of "key number ...".
std::optional<std::uint64_t> number_of(const fs::path& path, std::string_view wanted) {
  std::ifstream file(path);
  std::string key;
  while (file >> key) {
    std::uint64_t number = 0;
    if (key == wanted && file >> number) return number;
    file.clear();
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return std::nullopt;
}

// "Max address space  unlimited  unlimited  bytes": the soft limit, if there is one.
std::optional<std::uint64_t> own_limit(const fs::path& limits, std::string_view name) {
  std::ifstream file(limits);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(name)) continue;
    const std::size_t at = line.find_first_not_of(' ', name.size());
    std::uint64_t limit = 0;
    if (at == std::string::npos) return std::nullopt;
    const auto read = std::from_chars(line.data() + at, line.data() + line.size(), limit);
    if (read.ec == std::errc()) return limit;
    return std::nullopt;
  }
  return std::nullopt;
}

// A limit of the process on what it maps, and how much that is.
struct OwnLimit {
  std::string_view name;
  std::string_view line;  // of /proc/self/limits
  std::string_view used;  // of /proc/self/status
};
constexpr OwnLimit own_limits[] = {
    {.name = "RLIMIT_AS", .line = "Max address space", .used = "VmSize:"},
    {.name = "RLIMIT_DATA", .line = "Max data size", .used = "VmData:"}};

void bound_by(MachineMemory& memory, std::uint64_t limit, std::uint64_t used, std::string name) {
  memory.total = std::min(memory.total, limit);
  const std::uint64_t available = limit - std::min(limit, used);
  if (available >= memory.available) return;
  memory.available = available;
  memory.bound = std::move(name);
}

}  // namespace

Result<MachineMemory> machine_memory(const fs::path& root) {
  const fs::path file = root / "proc/meminfo";
  const auto total = number_of(file, "MemTotal:");
  const auto available = number_of(file, "MemAvailable:");
  if (!total || !available)
    return Error(ErrorCode::io, "can't tell how much memory there is", file.string(),
                 "give the sizes by hand (--kv-memory, --adapter-memory)");
  MachineMemory memory{.total = *total << 10, .available = *available << 10};
  for (const CgroupMemory& group : cgroup_memory(root))
    bound_by(memory, group.limit, group.used, cat("the cgroup ", printable(group.path)));
  const fs::path self = root / "proc/self";
  for (const OwnLimit& each : own_limits) {
    if (const auto limit = own_limit(self / "limits", each.line))
      bound_by(memory, *limit, number_of(self / "status", each.used).value_or(0) << 10,
               std::string(each.name));
  }
  return memory;
}

std::string memory_left() {
  const auto memory = machine_memory();
  if (!memory.ok()) return {};
  return cat(", where ", memory->bound, " leaves ", format_bytes(memory->available));
}

}  // namespace motley
