#include "base/system/cgroup_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string_view>

namespace motley {
namespace {

namespace fs = std::filesystem;

// The names that a version gives to the same things.
struct Version {
  std::string_view type;  // of the file system
  std::string_view limit;
  std::string_view throttle;  // a limit beyond which the group is slowed down; "": there is none
  std::string_view usage;
  std::string_view cache;  // a key of memory.stat: reclaimed before allocations fail
};

constexpr Version version_1 = {.type = "cgroup",
                               .limit = "memory.limit_in_bytes",
                               .throttle = "",
                               .usage = "memory.usage_in_bytes",
                               .cache = "total_inactive_file"};
constexpr Version version_2 = {.type = "cgroup2",
                               .limit = "memory.max",
                               .throttle = "memory.high",
                               .usage = "memory.current",
                               .cache = "inactive_file"};

// Version 1 writes the largest multiple of a page for "no limit".
constexpr std::uint64_t no_limit = std::uint64_t{1} << 62;

struct Mount {
  fs::path root;   // the group at the mount point
  fs::path point;  // an absolute path
};

// In mountinfo a space, tab, newline or backslash of a path is an octal escape.
std::string unescaped(std::string_view text) {
  const auto is_octal = [](char c) { return c >= '0' && c <= '7'; };
  std::string path;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size() && is_octal(text[i + 1]) && is_octal(text[i + 2]) &&
        is_octal(text[i + 3])) {
      path += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
                                (text[i + 3] - '0'));
      i += 3;
    } else {
      path += text[i];
    }
  }
  return path;
}

bool lists(std::string_view text, std::string_view wanted) {
  while (true) {
    const std::size_t comma = text.find(',');
    if (text.substr(0, comma) == wanted) return true;
    if (comma == std::string_view::npos) return false;
    text.remove_prefix(comma + 1);
  }
}

// "32 31 0:29 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory"
std::vector<Mount> mounts_of(const fs::path& root, const Version& version) {
  std::vector<Mount> mounts;
  std::ifstream file(root / "proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string skipped;
    std::string group;
    std::string point;
    words >> skipped >> skipped >> skipped >> group >> point;
    for (std::string word; words >> word && word != "-";) {
    }
    std::string type;
    std::string source;
    std::string options;
    words >> type >> source >> options;
    if (type != version.type) continue;
    if (type == version_1.type && !lists(options, "memory")) continue;
    mounts.push_back({.root = unescaped(group), .point = unescaped(point)});
  }
  return mounts;
}

// The group of this process: "0::/user.slice" in version 2, "4:memory:/a" in version 1.
std::optional<fs::path> own_group(const fs::path& root, const Version& version) {
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    if (first == std::string::npos) continue;
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool unified = controllers.empty();
    if (version.type == version_2.type ? unified : lists(controllers, "memory"))
      return fs::path(line.substr(second + 1));
  }
  return std::nullopt;
}

std::optional<std::uint64_t> number_in(const fs::path& path) {
  std::uint64_t number = 0;
  if (std::ifstream file(path); file >> number) return number;
  return std::nullopt;
}

std::uint64_t statistic(const fs::path& path, std::string_view wanted) {
  std::ifstream file(path);
  std::string key;
  for (std::uint64_t number = 0; file >> key >> number;) {
    if (key == wanted) return number;
  }
  return 0;
}

// Nothing if the group has no limit, which version 2 writes as "max".
std::optional<CgroupMemory> limit_of(const fs::path& folder, const fs::path& group,
                                     const Version& version) {
  std::uint64_t limit = number_in(folder / version.limit).value_or(no_limit);
  if (!version.throttle.empty())
    limit = std::min(limit, number_in(folder / version.throttle).value_or(no_limit));
  if (limit >= no_limit) return std::nullopt;
  const std::uint64_t usage = number_in(folder / version.usage).value_or(0);
  const std::uint64_t cache = statistic(folder / "memory.stat", version.cache);
  return CgroupMemory{
      .path = group.string(), .limit = limit, .used = usage - std::min(usage, cache)};
}

// The part of a group's path below another; nothing if it is not below.
std::optional<fs::path> below(const fs::path& group, const fs::path& top) {
  const auto [rest, end] = std::ranges::mismatch(group, top);
  if (end != top.end()) return std::nullopt;
  fs::path path;
  for (auto part = rest; part != group.end(); ++part) path /= *part;
  return path;
}

void add_limits(const fs::path& root, const Version& version, std::vector<CgroupMemory>& limits) {
  const std::optional<fs::path> group = own_group(root, version);
  if (!group) return;
  const std::vector<Mount> mounts = mounts_of(root, version);
  if (mounts.empty()) return;
  // In a container the group may be named as its host names it, and the mount show less: then only
  // the group at the mount point can be read.
  const Mount* mount = mounts.data();
  fs::path path;
  for (const Mount& each : mounts) {
    if (const auto rest = below(group->lexically_normal(), each.root)) {
      mount = &each;
      path = *rest;
      break;
    }
  }
  const fs::path point = root / mount->point.relative_path();
  while (true) {
    const fs::path name = path.empty() ? mount->root : mount->root / path;
    if (auto limit = limit_of(point / path, name, version)) limits.push_back(*std::move(limit));
    if (path.empty()) return;
    path = path.parent_path();
  }
}

}  // namespace

std::vector<CgroupMemory> cgroup_memory(const fs::path& root) {
  std::vector<CgroupMemory> limits;
  add_limits(root, version_2, limits);
  add_limits(root, version_1, limits);
  return limits;
}

}  // namespace motley
