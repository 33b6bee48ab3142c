#include "base/system/process_figures.h"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <system_error>
#include <unistd.h>
#include <vector>

namespace motley {
namespace {

namespace fs = std::filesystem;

// The fields of /proc/self/stat from the third on: the second, a name in parentheses, may contain
// anything.
std::vector<std::string> stat_fields() {
  std::ifstream file("/proc/self/stat");
  std::string text;
  std::getline(file, text, '\0');
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return {};
  std::istringstream rest(text.substr(name_end + 1));
  std::vector<std::string> fields;
  for (std::string field; rest >> field;) fields.push_back(field);
  return fields;
}

// In seconds since the epoch.
std::uint64_t boot_time() {
  std::ifstream file("/proc/stat");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string key;
    std::uint64_t time = 0;
    if (words >> key >> time && key == "btime") return time;
  }
  return 0;
}

std::uint64_t open_files() {
  std::uint64_t count = 0;
  std::error_code failure;
  for (fs::directory_iterator at("/proc/self/fd", failure), end; !failure && at != end;
       at.increment(failure))
    ++count;
  // One of them is that of this walk.
  return count == 0 ? 0 : count - 1;
}

}  // namespace

ProcessFigures process_figures() {
  // Indices behind the name; see proc(5).
  enum : std::size_t { utime = 11, stime = 12, threads = 17, start = 19, vsize = 20, rss = 21 };
  ProcessFigures figures{.open_files = open_files()};
  if (rlimit files{}; ::getrlimit(RLIMIT_NOFILE, &files) == 0) figures.max_files = files.rlim_cur;
  const std::vector<std::string> fields = stat_fields();
  if (fields.size() <= rss) return figures;
  const auto number = [&](std::size_t at) {
    std::uint64_t value = 0;
    std::istringstream(fields[at]) >> value;
    return value;
  };
  const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  figures.cpu_seconds = static_cast<double>(number(utime) + number(stime)) / ticks;
  figures.start_seconds =
      static_cast<double>(boot_time()) + static_cast<double>(number(start)) / ticks;
  figures.resident_bytes = number(rss) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  figures.virtual_bytes = number(vsize);
  figures.threads = number(threads);
  return figures;
}

}  // namespace motley
