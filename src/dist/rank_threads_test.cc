#include "dist/rank_threads.h"

#include <array>
#include <atomic>
#include <new>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/test_clock.h"
#include "base/test_waits.h"
#include "dist/thread_ranks.h"

namespace motley::dist {
namespace {

using testing::HasSubstr;

TEST(RankThreads, EveryRankWorksOnceOnItsOwnThread) {
  ThreadRanks group({.ranks = 4});
  RankThreads threads(group);
  std::vector<std::thread::id> ids(4);
  for (int call = 1; call <= 50; ++call) {
    std::atomic<int> sum = 0;
    ASSERT_TRUE(threads
                    .run([&](int rank) -> Result<void> {
                      ids[static_cast<std::size_t>(rank)] = std::this_thread::get_id();
                      sum += 1 << (4 * rank);
                      return group.rank(rank).barrier({});
                    })
                    .ok());
    EXPECT_EQ(sum, 0x1111);
  }
  EXPECT_EQ(ids[0], std::this_thread::get_id());
  EXPECT_THAT(ids, testing::Each(testing::Not(std::thread::id())));
}

TEST(RankThreads, AnErrorOfARankInTheMiddleOfTheWorkEndsItForAll) {
  for (const int faulty : {0, 1, 3}) {
    ThreadRanks group({.ranks = 4});
    RankThreads threads(group);
    const auto work = [&](int rank) -> Result<void> {
      MOTLEY_TRY_VOID(group.rank(rank).barrier({}));
      if (rank == faulty) return Error(ErrorCode::io, "the device is gone");
      for (;;) MOTLEY_TRY_VOID(group.rank(rank).barrier({}));
    };
    const auto result = threads.run(work);
    ASSERT_FALSE(result.ok());
    EXPECT_THAT(result.error().message(), HasSubstr("the device is gone"));
    if (faulty > 0) {
      EXPECT_THAT(result.error().message(), HasSubstr(cat("rank ", faulty)));
    }
    // Nothing is computed any more.
    EXPECT_FALSE(threads.run([](int) { return Result<void>(); }).ok());
  }
}

TEST(RankThreads, RanksAreWatchedBetweenCallsUntilTheyAreDone) {
  ThreadRanks group({.ranks = 3});
  std::array<std::atomic<int>, 3> looks{};
  test::ScriptedClock clock;
  const auto look = [&](int rank) -> Result<bool> {
    return ++looks[static_cast<std::size_t>(rank)] == 3;
  };
  RankThreads threads(group, look, &clock);
  const auto nothing = [](int) { return Result<void>(); };
  clock.wait_for_threads(2, TimePoint::max(), "ranks 1 and 2 wait for their first call");
  ASSERT_TRUE(threads.run(nothing).ok());
  for (int looked = 0; looked < 3; ++looked) {
    clock.wait_for_threads(2, clock.now() + RankThreads::between_looks, "ranks 1 and 2 look again");
    EXPECT_EQ(looks[1], looked);
    EXPECT_EQ(looks[2], looked);
    clock.advance(RankThreads::between_looks);
  }
  clock.wait_for_threads(2, TimePoint::max(), "ranks 1 and 2 are done and wait for a call");
  EXPECT_EQ(looks[0], 0);
  EXPECT_EQ(looks[1], 3);
  EXPECT_EQ(looks[2], 3);
  // A call does not wait for one that is not done.
  ASSERT_TRUE(threads.run(nothing).ok());
  ASSERT_TRUE(threads.run(nothing).ok());
}

TEST(RankThreads, AnErrorBetweenCallsEndsTheGroup) {
  ThreadRanks group({.ranks = 2});
  std::atomic<bool> gone = false;
  RankThreads threads(group, [&](int) -> Result<bool> {
    if (gone) return Error(ErrorCode::io, "the GPU is gone");
    return false;
  });
  const auto nothing = [](int) { return Result<void>(); };
  ASSERT_TRUE(threads.run(nothing).ok());
  gone = true;
  test::wait_for("the group has failed", [&] { return !group.rank(0).status().ok(); });
  const auto next = threads.run(nothing);
  ASSERT_FALSE(next.ok());
  EXPECT_EQ(next.error().message(), "the GPU is gone (rank 1)");
}

TEST(RankThreads, MemoryThatRunsOutIsAnError) {
  ThreadRanks group({.ranks = 2});
  RankThreads threads(group);
  const auto result = threads.run([&](int rank) -> Result<void> {
    if (rank == 1) throw std::bad_alloc();
    return group.rank(rank).barrier({});
  });
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code(), ErrorCode::out_of_memory);
}

}  // namespace
}  // namespace motley::dist
