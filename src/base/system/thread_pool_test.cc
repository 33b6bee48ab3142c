#include "base/system/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/system/cpu.h"
#include "base/test_waits.h"

namespace motley {
namespace {

using Ranges = std::vector<std::pair<std::int64_t, std::int64_t>>;

constexpr int sizes[] = {1, 2, 3, 4, 8};

// No spinning, because tests run in parallel: a worker would use another test's processor.
ThreadPool::Options quiet(int threads) {
  return {.threads = threads, .pin = false, .spin = std::chrono::microseconds(0)};
}

Ranges ranges_of(ThreadPool& pool, std::int64_t count, std::int64_t grain) {
  std::mutex lock;
  Ranges ranges;
  pool.for_ranges(count, grain, [&](std::int64_t begin, std::int64_t end) {
    const std::lock_guard held(lock);
    ranges.emplace_back(begin, end);
  });
  std::sort(ranges.begin(), ranges.end());
  return ranges;
}

TEST(ThreadPool, RunsEveryRankOnce) {
  for (const int size : sizes) {
    ThreadPool pool(quiet(size));
    EXPECT_EQ(pool.size(), size);
    std::vector<int> calls(static_cast<std::size_t>(size), 0);
    for (int call = 1; call <= 200; ++call) {
      pool.run([&](int rank) { ++calls.at(static_cast<std::size_t>(rank)); });
      EXPECT_EQ(calls, std::vector<int>(static_cast<std::size_t>(size), call));
    }
  }
}

TEST(ThreadPool, RanksHaveThreadsOfTheirOwnAndRankZeroTheCallers) {
  ThreadPool pool(quiet(4));
  std::vector<std::thread::id> first(4);
  std::vector<std::thread::id> second(4);
  pool.run([&](int rank) { first[static_cast<std::size_t>(rank)] = std::this_thread::get_id(); });
  pool.run([&](int rank) { second[static_cast<std::size_t>(rank)] = std::this_thread::get_id(); });
  EXPECT_EQ(first, second);
  EXPECT_EQ(first[0], std::this_thread::get_id());
  EXPECT_EQ(std::set<std::thread::id>(first.begin(), first.end()).size(), 4U);
}

TEST(ThreadPool, ResultsAreSeenByTheCallerAndTheNextCall) {
  ThreadPool pool(quiet(4));
  std::vector<std::int64_t> values(4, 0);
  for (int call = 0; call < 1000; ++call) {
    // Each rank reads what another wrote in the call before.
    std::vector<std::int64_t> next(4);
    pool.run([&](int rank) {
      const auto at = static_cast<std::size_t>(rank);
      next[at] = values[(at + 1) % 4] + 1;
    });
    values = next;
  }
  EXPECT_EQ(values, std::vector<std::int64_t>(4, 1000));
}

TEST(ThreadPool, RangesCoverEveryIndexOnceInNearlyEqualParts) {
  for (const int size : sizes) {
    ThreadPool pool(quiet(size));
    for (const std::int64_t count : {1, 2, 3, 5, 7, 8, 9, 16, 31, 100, 1000, 4097}) {
      for (const std::int64_t grain : {-1, 0, 1, 2, 3, 16, 100, 10'000}) {
        const Ranges ranges = ranges_of(pool, count, grain);
        std::int64_t at = 0;
        std::int64_t shortest = count;
        std::int64_t longest = 0;
        for (const auto& [begin, end] : ranges) {
          ASSERT_EQ(begin, at) << count << " " << grain << " " << size;
          shortest = std::min(shortest, end - begin);
          longest = std::max(longest, end - begin);
          at = end;
        }
        EXPECT_EQ(at, count) << grain << " " << size;
        EXPECT_LE(longest - shortest, 1) << count << " " << grain << " " << size;
        EXPECT_LE(ranges.size(), static_cast<std::size_t>(size));
        EXPECT_TRUE(ranges.size() == 1 || shortest >= std::max<std::int64_t>(grain, 1))
            << count << " " << grain << " " << size << ": " << shortest;
        if (count >= size * std::max<std::int64_t>(grain, 1)) {
          EXPECT_EQ(ranges.size(), static_cast<std::size_t>(size)) << count << " " << grain;
        }
      }
    }
  }
}

TEST(ThreadPool, RangesDependOnCountGrainAndSizeOnly) {
  ThreadPool one(quiet(3));
  ThreadPool other({.threads = 3, .pin = false, .spin = std::chrono::microseconds(20)});
  for (const std::int64_t count : {1, 10, 11, 12, 997}) {
    const Ranges wanted = ranges_of(one, count, 2);
    for (int again = 0; again < 20; ++again) {
      EXPECT_EQ(ranges_of(one, count, 2), wanted) << count;
      EXPECT_EQ(ranges_of(other, count, 2), wanted) << count;
    }
  }
}

TEST(ThreadPool, RangesOfCountsNearTheLimitDoNotOverflow) {
  ThreadPool pool(quiet(4));
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  const Ranges ranges = ranges_of(pool, most, 1);
  ASSERT_EQ(ranges.size(), 4U);
  EXPECT_EQ(ranges.front().first, 0);
  EXPECT_EQ(ranges.back().second, most);
}

TEST(ThreadPool, NothingToDoCallsNothing) {
  ThreadPool pool(quiet(4));
  for (const std::int64_t count : {0, -1, -1000}) {
    EXPECT_EQ(ranges_of(pool, count, 1), Ranges());
    pool.for_tasks(count, [](std::int64_t) { ADD_FAILURE(); });
  }
}

TEST(ThreadPool, TasksAreEachCalledOnce) {
  for (const int size : sizes) {
    ThreadPool pool(quiet(size));
    for (const std::int64_t tasks : {1, 2, 3, 7, 100, 5000}) {
      std::vector<int> calls(static_cast<std::size_t>(tasks), 0);
      pool.for_tasks(tasks, [&](std::int64_t task) { ++calls[static_cast<std::size_t>(task)]; });
      EXPECT_EQ(calls, std::vector<int>(calls.size(), 1)) << tasks << " tasks, size " << size;
    }
  }
}

TEST(ThreadPool, NoMoreThreadsThanAskedForDoTasks) {
  ThreadPool pool(quiet(8));
  for (const std::int64_t threads : {-1, 1, 3, 20}) {
    std::mutex lock;
    std::set<std::thread::id> who;
    pool.for_tasks(1000, threads, [&](std::int64_t) {
      const std::lock_guard held(lock);
      who.insert(std::this_thread::get_id());
    });
    EXPECT_LE(std::ssize(who), std::clamp<std::int64_t>(threads, 1, 8));
  }
}

TEST(ThreadPool, ManyCallsOfDifferentKindsFollowEachOther) {
  ThreadPool pool({.threads = 4, .pin = false, .spin = std::chrono::microseconds(5)});
  std::vector<std::int64_t> sums(4, 0);
  std::int64_t wanted = 0;
  for (std::int64_t call = 0; call < 10'000; ++call) {
    const std::int64_t count = call % 37;
    std::atomic<std::int64_t> sum{0};
    if (call % 3 == 0) {
      pool.for_ranges(count, 1 + call % 5, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) sum += i;
      });
      ASSERT_EQ(sum, count * (count - 1) / 2) << call;
    } else if (call % 3 == 1) {
      pool.for_tasks(count, [&](std::int64_t task) { sum += task; });
      ASSERT_EQ(sum, count * (count - 1) / 2) << call;
    } else {
      pool.run([&](int rank) { sums[static_cast<std::size_t>(rank)] += call; });
      wanted += call;
    }
  }
  EXPECT_EQ(sums, std::vector<std::int64_t>(4, wanted));
}

// Each caller's body detects another one if calls ever overlap.
void expect_one_call_at_a_time(int size,
                               const std::function<void(ThreadPool&, FunctionRef<void()>)>& call) {
  ThreadPool pool(quiet(size));
  std::atomic<int> inside{0};
  std::atomic<int> overlaps{0};
  // a race, which the thread sanitizer reports, unless calls exclude each other
  std::int64_t unguarded = 0;
  std::vector<std::thread> callers;
  for (int t = 0; t < 4; ++t) {
    callers.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        call(pool, [&] {
          if (inside.fetch_add(1) != 0) ++overlaps;
          ++unguarded;
          --inside;
        });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(overlaps, 0) << "size " << size;
  EXPECT_EQ(unguarded, 4 * 500) << "size " << size;
}

TEST(ThreadPool, CallsOfSeveralThreadsWaitForEachOther) {
  for (const int size : {1, 2, 4}) {
    expect_one_call_at_a_time(size, [](ThreadPool& pool, FunctionRef<void()> body) {
      pool.run([&](int rank) {
        if (rank == 0) body();
      });
    });
    expect_one_call_at_a_time(size, [](ThreadPool& pool, FunctionRef<void()> body) {
      pool.for_ranges(3, 3, [&](std::int64_t, std::int64_t) { body(); });
    });
    expect_one_call_at_a_time(size, [](ThreadPool& pool, FunctionRef<void()> body) {
      pool.for_tasks(1, [&](std::int64_t) { body(); });
    });
  }
}

TEST(ThreadPool, BodyMayCallAnotherPool) {
  ThreadPool outer(quiet(2));
  std::vector<std::unique_ptr<ThreadPool>> inner;
  for (int i = 0; i < 2; ++i) inner.push_back(std::make_unique<ThreadPool>(quiet(3)));
  std::atomic<int> calls{0};
  for (int i = 0; i < 200; ++i) {
    outer.run([&](int rank) {
      inner[static_cast<std::size_t>(rank)]->run([&](int) { ++calls; });
      inner[0]->run([&](int) { ++calls; });
    });
    outer.run([&](int) { ++calls; });
  }
  EXPECT_EQ(calls, 200 * (2 * 3 + 2 * 3 + 2));
}

TEST(ThreadPool, IsDestroyedInEveryStateOfItsWorkers) {
  std::atomic<int> calls{0};
  const auto count = [&](int) { ++calls; };
  for (int i = 0; i < 50; ++i) {
    test::call_within_bound("a pool ends that was never called",
                            [] { EXPECT_EQ(ThreadPool(quiet(4)).size(), 4); });
    test::call_within_bound("a pool ends whose workers sleep", [&] {
      ThreadPool asleep(quiet(4));
      asleep.run(count);
    });
    test::call_within_bound("a pool ends whose workers spin", [&] {
      ThreadPool spinning({.threads = 4, .pin = false, .spin = std::chrono::milliseconds(2)});
      spinning.run(count);
    });
  }
  EXPECT_EQ(calls, 50 * 2 * 4);
}

TEST(ThreadPool, AnyLengthOfSpinningGivesTheSame) {
  for (const int spin : {-5, 0, 1, 1000}) {
    ThreadPool pool({.threads = 3, .pin = false, .spin = std::chrono::microseconds(spin)});
    std::atomic<int> calls{0};
    for (int i = 0; i < 300; ++i) pool.run([&](int) { ++calls; });
    EXPECT_EQ(calls, 900) << spin;
  }
}

TEST(ThreadPool, PoolOfOneRunsOnTheCallingThread) {
  ThreadPool pool(quiet(1));
  std::vector<std::thread::id> threads;
  pool.run([&](int) { threads.push_back(std::this_thread::get_id()); });
  pool.for_ranges(
      10, 1, [&](std::int64_t, std::int64_t) { threads.push_back(std::this_thread::get_id()); });
  pool.for_tasks(2, [&](std::int64_t) { threads.push_back(std::this_thread::get_id()); });
  EXPECT_EQ(threads, std::vector<std::thread::id>(4, std::this_thread::get_id()));
}

TEST(ThreadPool, TakesEveryUsableProcessorByDefault) {
  EXPECT_EQ(ThreadPool(quiet(0)).size(), usable_cpus());
  EXPECT_EQ(ThreadPool(quiet(-3)).size(), usable_cpus());
}

TEST(ThreadPool, IsNotPinnedUnlessItOwnsTheMachine) {
  EXPECT_FALSE(ThreadPool().pinned());
  const int more = static_cast<int>(std::thread::hardware_concurrency()) + 1;
  for (const int threads : {1, more})
    EXPECT_FALSE(ThreadPool({.threads = threads, .pin = true}).pinned()) << threads;
}

TEST(ThreadPoolDeathTest, BodyThatCallsItsOwnPoolAborts) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  for (const int size : {1, 2}) {
    const auto nested = [size](auto inner) {
      ThreadPool pool(quiet(size));
      pool.run([&](int) { inner(pool); });
    };
    const char* const reason = "a body must not call its own pool";
    EXPECT_DEATH(nested([](ThreadPool& pool) { pool.run([](int) {}); }), reason);
    EXPECT_DEATH(
        nested([](ThreadPool& pool) { pool.for_ranges(1, 1, [](std::int64_t, std::int64_t) {}); }),
        reason);
    EXPECT_DEATH(nested([](ThreadPool& pool) { pool.for_tasks(1, [](std::int64_t) {}); }), reason);
  }
}

TEST(ThreadPoolDeathTest, PoolsThatCallEachOtherInACircleAbort) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  // From the rank that runs on the caller's thread, and from one of the workers.
  for (const int caller : {0, 1}) {
    const auto circle = [caller] {
      ThreadPool first(quiet(2));
      ThreadPool second(quiet(2));
      first.run([&](int outer) {
        if (outer != caller) return;
        second.run([&](int inner) {
          if (inner == caller) first.run([](int) {});
        });
      });
    };
    EXPECT_DEATH(circle(), "a body must not call its own pool") << caller;
  }
}

TEST(FunctionRef, CallsWhatItRefersTo) {
  int calls = 0;
  const auto count = [&calls](int by) { return calls += by; };
  const FunctionRef<int(int)> reference = count;
  const FunctionRef<int(int)> copy = reference;
  EXPECT_EQ(reference(2), 2);
  EXPECT_EQ(copy(3), 5);
  EXPECT_EQ(calls, 5);
}

TEST(FunctionRef, PassesWhatOnlyMoves) {
  const auto take = [](std::unique_ptr<int> owned) { return *owned; };
  const FunctionRef<int(std::unique_ptr<int>)> reference = take;
  EXPECT_EQ(reference(std::make_unique<int>(4)), 4);
}

}  // namespace
}  // namespace motley
