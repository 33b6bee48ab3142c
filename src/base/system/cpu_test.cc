#include "base/system/cpu.h"

#include <algorithm>
#include <sched.h>
#include <set>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace motley {
namespace {

TEST(Cpu, AllowedProcessorsAreDifferentAndInOrder) {
  const std::vector<int> cpus = allowed_cpus();
  ASSERT_FALSE(cpus.empty());
  EXPECT_GE(cpus.front(), 0);
  EXPECT_TRUE(std::is_sorted(cpus.begin(), cpus.end()));
  EXPECT_EQ(std::set<int>(cpus.begin(), cpus.end()).size(), cpus.size());
}

TEST(Cpu, UsableProcessorsAreSomeOfTheAllowed) {
  EXPECT_GE(usable_cpus(), 1);
  EXPECT_LE(usable_cpus(), static_cast<int>(allowed_cpus().size()));
}

TEST(Cpu, FollowsTheAffinityOfTheThread) {
  const int first = allowed_cpus().front();
  std::vector<int> seen;
  int usable = 0;
  bool set = false;
  std::thread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    set = ::sched_setaffinity(0, sizeof one, &one) == 0;
    seen = allowed_cpus();
    usable = usable_cpus();
  }).join();
  ASSERT_TRUE(set);
  EXPECT_EQ(seen, std::vector<int>{first});
  EXPECT_EQ(usable, 1);
}

TEST(Cpu, FeaturesImplyWhatTheyBuildOn) {
  const CpuFeatures& features = cpu_features();
  EXPECT_EQ(&features, &cpu_features());
  EXPECT_TRUE(features.avx2 || !features.avx512);
  EXPECT_TRUE(features.avx512 || !features.avx512_vnni);
  EXPECT_TRUE(features.avx512 || !features.avx512_bf16);
  EXPECT_TRUE(!features.avx2 || (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                                 __builtin_cpu_supports("f16c")));
}

}  // namespace
}  // namespace motley
