#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "lora/pages/test_rank_pools.h"

// Adapters of several ranks that are evicted from devices and come back from the host.
namespace motley::lora {
namespace {

using test::RankPools;

class HostTierOfRanks : public testing::TestWithParam<int> {
 protected:
  // Each device holds two adapters, the host eight.
  RankPools pools_{{.ranks = GetParam(), .pages = 24, .host_pages = 72}};

  Handle on_host(std::uint32_t number) {
    return pools_.host().load(cat(number), RankPools::adapter(number)).value();
  }
  // On every rank.
  void expect_missing(const std::string& name, std::uint64_t free_pages) {
    for (int rank = 0; rank < pools_.ranks(); ++rank) {
      EXPECT_EQ(pools_.pool(rank).state(name), State::absent) << "rank " << rank;
      EXPECT_EQ(pools_.pool(rank).usage().free_pages, free_pages) << "rank " << rank;
    }
    pools_.check_invariants();
  }
};
INSTANTIATE_TEST_SUITE_P(Ranks, HostTierOfRanks, testing::Values(1, 2, 3),
                         [](const auto& ranks) { return cat("of", ranks.param); });

TEST_P(HostTierOfRanks, EveryRankGetsItsPartBackAsOftenAsItIsEvicted) {
  for (std::uint32_t number = 0; number < 6; ++number) on_host(number);
  for (int round = 0; round < 3; ++round) {
    for (std::uint32_t number = 0; number < 6; ++number) {
      const Handle source = pools_.host().acquire(cat(number)).value();
      const Handle handle = pools_.pool().load(cat(number), source).value();
      ASSERT_TRUE(pools_.hold(handle, RankPools::adapter(number))) << number << " again " << round;
    }
  }
  EXPECT_GT(pools_.pool().usage().evictions, 12U);
  for (int rank = 1; rank < pools_.ranks(); ++rank)
    EXPECT_EQ(pools_.pool(rank).usage().adapters, pools_.pool().usage().adapters);
  pools_.check_invariants();
}

// All bytes of every rank's runs, directories aside, which name addresses.
TEST_P(HostTierOfRanks, HasTheBytesOfALoadFromFiles) {
  const Adapter adapter = RankPools::adapter(3);
  const Handle source = on_host(3);
  const Handle copied = pools_.pool().load("copied", source).value();
  const Handle made = pools_.pool().load("made", adapter).value();
  for (int rank = 0; rank < pools_.ranks(); ++rank) {
    const std::byte* const from = source->shard(rank).run(0);
    const std::size_t bytes =
        (pools_.host(rank).usage().pages - pools_.host(rank).usage().free_pages) * RankPools::page;
    EXPECT_EQ(source->shard(rank).pages() * RankPools::page, bytes);
    for (const Handle* handle : {&copied, &made}) {
      const Resident& part = (*handle)->shard(rank);
      EXPECT_EQ(part.pool(), &pools_.pool(rank));
      EXPECT_EQ(std::memcmp(part.run(0), from, RankPools::page), 0) << "rank " << rank;
      EXPECT_EQ(part.version(), adapter.version);
    }
  }
  EXPECT_TRUE(pools_.hold(copied, adapter));
}

TEST_P(HostTierOfRanks, AFailedCopyOnOneRankLeavesNothingOnAny) {
  const Handle source = on_host(1);
  const std::uint64_t pages = pools_.pool().usage().free_pages;
  for (int faulty = 0; faulty < pools_.ranks(); ++faulty) {
    for (int copies = 0; copies < 3; ++copies) {
      SCOPED_TRACE(cat("rank ", faulty, " after ", copies));
      pools_.device(faulty).fail_after(copies);
      const auto refused = pools_.pool().load("a", source);
      pools_.device(faulty).fail_after(std::numeric_limits<int>::max());
      if (refused.ok()) {
        EXPECT_GT(copies, 1) << "an adapter takes some copies";
        ASSERT_TRUE(pools_.pool().unload("a").ok());
        continue;
      }
      EXPECT_THAT(refused.error().message(), testing::HasSubstr("the script says so"));
      if (faulty > 0) {
        EXPECT_THAT(refused.error().message(), testing::HasSubstr(cat("rank ", faulty)));
      }
      expect_missing("a", pages);
    }
  }
  const Handle handle = pools_.pool().load("a", source).value();
  EXPECT_TRUE(pools_.hold(handle, RankPools::adapter(1)));
}

TEST_P(HostTierOfRanks, AFailedCopyLeavesTheOldContentInPlace) {
  const Handle old_source = pools_.host().load("a", RankPools::adapter(1)).value();
  const Handle old = pools_.pool().load("a", old_source).value();
  const Handle source = pools_.host().load("a", RankPools::adapter(2)).value();
  pools_.device(pools_.ranks() - 1).fail_after(0);
  EXPECT_FALSE(pools_.pool().load("a", source).ok());
  pools_.device(pools_.ranks() - 1).fail_after(std::numeric_limits<int>::max());
  EXPECT_TRUE(pools_.hold(old, RankPools::adapter(1)));
  EXPECT_EQ(pools_.pool().acquire("a").value()->version(), RankPools::adapter(1).version);
  const Handle fresh = pools_.pool().load("a", source).value();
  EXPECT_TRUE(pools_.hold(fresh, RankPools::adapter(2)));
  EXPECT_TRUE(pools_.hold(old, RankPools::adapter(1)));
  pools_.check_invariants();
}

TEST_P(HostTierOfRanks, WhatIsUnloadedComesBackFromTheHost) {
  const Handle source = on_host(4);
  const std::uint64_t pages = pools_.pool().usage().free_pages;
  ASSERT_TRUE(pools_.pool().load("4", source).ok());
  ASSERT_TRUE(pools_.pool().unload("4").ok());
  expect_missing("4", pages);
  const Handle handle = pools_.pool().load("4", source).value();
  EXPECT_TRUE(pools_.hold(handle, RankPools::adapter(4)));
}

// What is idle on rank 0 is pinned in the pools of others by rank 0's handles alone.
TEST_P(HostTierOfRanks, IdleAdaptersAreInUseOnNoRank) {
  Handle handle = pools_.pool().load("a", on_host(1)).value();
  for (int rank = 1; rank < pools_.ranks(); ++rank) {
    EXPECT_EQ(pools_.pool().usage_of(rank).pinned_pages, handle->shard(rank).pages());
    EXPECT_EQ(pools_.pool().usage_of(rank).pinned_adapters, 1);
  }
  handle = {};
  for (int rank = 1; rank < pools_.ranks(); ++rank) {
    EXPECT_EQ(pools_.pool().usage_of(rank).pinned_pages, 0U);
    EXPECT_EQ(pools_.pool().usage_of(rank).free_pages, pools_.pool(rank).usage().free_pages);
  }
}

// A rank's memory runs out before the others'.
TEST(HostTierOfTwoRanks, ARankWithLessOfTheHostMakesAllEvict) {
  RankPools pools({.ranks = 2, .pages = 24, .host_pages = 72});
  pools.device(1).fail_after_pieces(2);
  for (std::uint32_t number = 0; number < 6; ++number)
    ASSERT_TRUE(pools.host().load(cat(number), RankPools::adapter(number)).ok());
  EXPECT_LT(pools.host().usage().adapters, 6);
  EXPECT_EQ(pools.host(1).usage().adapters, pools.host().usage().adapters);
  const Handle source = pools.host().acquire("5").value();
  EXPECT_TRUE(pools.hold(pools.pool().load("5", source).value(), RankPools::adapter(5)));
  pools.check_invariants();
}

}  // namespace
}  // namespace motley::lora
