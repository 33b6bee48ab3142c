#include "base/test_waits.h"

#include <atomic>
#include <condition_variable>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/test_clock.h"

namespace motley::test {
namespace {

constexpr std::chrono::milliseconds soon(1);

class WaitsDeathTest : public testing::Test {
 protected:
  WaitsDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(WaitsDeathTest, AnEventThatDoesNotHappenIsNamedWithItsPlace) {
  EXPECT_DEATH(Event(soon).wait("the door opens"),
               "test_waits_test.cc:[0-9]+: no such event within the bound: the door opens");
  EXPECT_DEATH(Monitor(soon).wait("the last of them", [] { return false; }), "the last of them");
}

TEST(Waits, EndWithTheEvent) {
  Event asked;
  Event answered;
  std::thread other([&] {
    asked.wait("the question");
    answered.set();
  });
  EXPECT_FALSE(answered.has_happened());
  asked.set();
  answered.wait("the answer");
  EXPECT_TRUE(answered.has_happened());
  other.join();
  std::promise<int> promise;
  promise.set_value(3);
  EXPECT_EQ(get(promise, "the value"), 3);
  int looks = 0;
  wait_for("the third look", [&] { return ++looks == 3; });
  EXPECT_EQ(looks, 3);
}

TEST(Waits, AMeetingLetsThreadsGoTogether) {
  Meeting meeting(3);
  std::atomic<int> before{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      for (int round = 1; round <= 20; ++round) {
        ++before;
        meeting.arrive_and_wait("all three are there");
        EXPECT_EQ(before, 3 * round);
        meeting.arrive_and_wait("all three have looked");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(ScriptedClock, ThreadsGoOnAtTheirDeadlines) {
  ScriptedClock clock;
  constexpr std::chrono::hours day(24);
  std::mutex lock;
  std::condition_variable changed;
  bool called = false;
  std::atomic<int> late{0};
  const auto wait = [&](TimePoint deadline) {
    std::unique_lock held(lock);
    if (!clock.wait_until(changed, held, deadline, [&] { return called; })) ++late;
  };
  std::thread first([&] { wait(TimePoint(day)); });
  std::thread second([&] { wait(TimePoint(2 * day)); });
  std::thread endless([&] { wait(TimePoint::max()); });
  clock.wait_for_threads(1, TimePoint(day), "the first waits");
  clock.wait_for_threads(1, TimePoint(2 * day), "the second waits");
  clock.wait_for_threads(1, TimePoint::max(), "the third waits without a deadline");
  clock.advance(day);
  first.join();
  EXPECT_EQ(late, 1);
  {
    const std::lock_guard held(lock);
    called = true;
  }
  changed.notify_all();
  second.join();
  endless.join();
  EXPECT_EQ(late, 1) << "the others were called in time";
  clock.wait_for_threads(0, TimePoint(2 * day), "none waits any more");
}

}  // namespace
}  // namespace motley::test
