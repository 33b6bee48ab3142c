#include "server/fair_workers.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <mutex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace motley::server {
namespace {

using ::testing::ElementsAre;

constexpr std::size_t large = std::size_t{1} << 20;

// The bound of all waits.
constexpr auto max_wait = std::chrono::seconds(60);

void expect_set(std::promise<void>& promise, const char* what) {
  EXPECT_EQ(promise.get_future().wait_for(max_wait), std::future_status::ready)
      << "waited for " << what;
}

// Tasks that record when they run, on workers that are blocked until all are queued.
class HeldWorkers {
 public:
  explicit HeldWorkers(int threads = 1) : workers_({.threads = threads}) {
    workers_.submit({"holder"}, 1, [this] {
      holds_.set_value();
      release_.get_future().wait();
    });
    expect_set(holds_, "the holder");  // else a worker might choose another task first
  }

  FairWorkers::Ticket add(const std::string& client, std::size_t bytes, const std::string& name) {
    ++tasks_;
    return workers_.submit({client}, bytes, [this, name] {
      const std::lock_guard lock(mutex_);
      order_.push_back(name);
      if (--tasks_ == 0) done_.set_value();
    });
  }
  void hurry(const FairWorkers::Ticket& ticket) { workers_.hurry(ticket); }

  std::vector<std::string> run() {
    release_.set_value();
    expect_set(done_, "all tasks");
    const std::lock_guard lock(mutex_);
    return order_;
  }

 private:
  std::promise<void> holds_;
  std::promise<void> release_;
  std::promise<void> done_;
  std::mutex mutex_;
  std::atomic<int> tasks_ = 0;
  std::vector<std::string> order_;
  FairWorkers workers_;  // last, so that it is destroyed first
};

TEST(FairWorkers, ClientsTakeTurns) {
  HeldWorkers workers;
  for (const char* const name : {"a1", "a2", "a3"}) workers.add("a", 100, name);
  workers.add("b", 100, "b1");
  const std::vector<std::string> order = workers.run();
  EXPECT_LT(std::ranges::find(order, "b1") - order.begin(), 2);
}

TEST(FairWorkers, AClientOfLargeTasksGetsNoMoreBytes) {
  HeldWorkers workers;
  workers.add("a", large, "a1");
  workers.add("a", large, "a2");
  for (const char* const name : {"b1", "b2", "b3", "b4"}) workers.add("b", 1000, name);
  const std::vector<std::string> order = workers.run();
  EXPECT_EQ(order.back(), "a2");
}

TEST(FairWorkers, SmallTasksOfAClientComeFirst) {
  HeldWorkers workers;
  workers.add("a", large, "large");
  workers.add("a", 10, "small");
  EXPECT_THAT(workers.run(), ElementsAre("small", "large"));
}

TEST(FairWorkers, WhatIsHurriedComesNextAndOnce) {
  HeldWorkers workers;
  workers.add("a", 10, "first");
  const auto gone = workers.add("a", large, "gone");
  workers.add("a", 10, "second");
  workers.hurry(gone);
  workers.hurry(gone);
  EXPECT_THAT(workers.run(), ElementsAre("gone", "first", "second"));
}

TEST(FairWorkers, LargeTasksLeaveAThreadToTheSmall) {
  std::promise<void> release;
  const std::shared_future<void> held = release.get_future().share();
  std::promise<void> ended;
  std::promise<void> small;
  int large_tasks = 3;
  FairWorkers workers({.threads = 2});  // last, so that it is destroyed first
  for (int i = 0; i < 3; ++i) {
    workers.submit({"a"}, large, [&] {
      held.wait();
      if (--large_tasks == 0) ended.set_value();  // one at a time
    });
  }
  workers.submit({"b"}, 1, [&] { small.set_value(); });
  expect_set(small, "a small task while large ones run");
  EXPECT_EQ(large_tasks, 3) << "they wait";
  release.set_value();
  expect_set(ended, "the large tasks");
}

}  // namespace
}  // namespace motley::server
