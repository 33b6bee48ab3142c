#include "base/system/random_seed.h"

#include <set>

#include <gtest/gtest.h>

namespace motley {
namespace {

TEST(RandomSeed, DiffersForEachCall) {
  std::set<std::uint64_t> seeds;
  for (int i = 0; i < 100; ++i) seeds.insert(random_seed());
  EXPECT_EQ(seeds.size(), 100);
}

}  // namespace
}  // namespace motley
