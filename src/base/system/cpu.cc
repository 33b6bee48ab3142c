#include "base/system/cpu.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <sched.h>
#include <string>

namespace motley {
namespace {

CpuFeatures detect() {
  __builtin_cpu_init();
  CpuFeatures features;
  features.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                  __builtin_cpu_supports("f16c");
  features.avx512 = features.avx2 && __builtin_cpu_supports("avx512f") &&
                    __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                    __builtin_cpu_supports("avx512vl");
  features.avx512_vnni = features.avx512 && __builtin_cpu_supports("avx512vnni");
  features.avx512_bf16 = features.avx512 && __builtin_cpu_supports("avx512bf16");
  return features;
}

// The CPU quota of a container. Only files of the own control group are read: inside a container
// they are the container's.
int quota_cpus() {
  constexpr int unlimited = std::numeric_limits<int>::max();
  std::string quota;
  double period = 0;
  // "<microseconds> <period>", or "max <period>" for no limit; the older control groups have a file
  // for each, and -1 for no limit.
  if (std::ifstream file("/sys/fs/cgroup/cpu.max"); !(file >> quota >> period)) {
    std::ifstream("/sys/fs/cgroup/cpu/cpu.cfs_quota_us") >> quota;
    std::ifstream("/sys/fs/cgroup/cpu/cpu.cfs_period_us") >> period;
  }
  double microseconds = 0;
  const auto parsed = std::from_chars(quota.data(), quota.data() + quota.size(), microseconds);
  if (parsed.ec != std::errc() || microseconds <= 0 || period <= 0) return unlimited;
  return static_cast<int>(std::clamp(microseconds / period, 1.0, 1e6));
}

}  // namespace

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = detect();
  return features;
}

std::vector<int> allowed_cpus() {
  std::vector<int> cpus;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
    }
  }
  // There are more processors than a cpu_set_t holds, or no such call: this thread runs on at least
  // one.
  if (cpus.empty()) cpus.push_back(std::max(0, ::sched_getcpu()));
  return cpus;
}

int usable_cpus() { return std::min(static_cast<int>(allowed_cpus().size()), quota_cpus()); }

}  // namespace motley
