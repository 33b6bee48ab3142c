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

bool happens(const std::future<void>& event) {
  return event.wait_for(std::chrono::seconds(60)) == std::future_status::ready;
}

// Tasks that record when they run, on workers that are blocked until all are queued.
class HeldWorkers {
 public:
  explicit HeldWorkers(int threads = 1) : workers_({.threads = threads}) {
    workers_.submit("holder", 1, [this] { let_go_.get_future().wait(); });
  }

  FairWorkers::Ticket add(const std::string& client, std::size_t bytes, const std::string& name) {
    ++tasks_;
    return workers_.submit(client, bytes, [this, name] {
      const std::lock_guard lock(mutex_);
      order_.push_back(name);
      if (--tasks_ == 0) done_.set_value();
    });
  }
  void hurry(const FairWorkers::Ticket& ticket) { workers_.hurry(ticket); }

  std::vector<std::string> run() {
    let_go_.set_value();
    EXPECT_TRUE(happens(done_.get_future())) << "not all tasks have run within a minute";
    const std::lock_guard lock(mutex_);
    return order_;
  }

 private:
  std::promise<void> let_go_;
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
  FairWorkers workers({.threads = 2});
  std::promise<void> let_go;
  const std::shared_future<void> held = let_go.get_future().share();
  std::promise<void> ended;
  int large_tasks = 3;
  for (int i = 0; i < 3; ++i) {
    workers.submit("a", large, [&] {
      held.wait();
      if (--large_tasks == 0) ended.set_value();  // one at a time
    });
  }
  std::promise<void> small;
  workers.submit("b", 1, [&] { small.set_value(); });
  EXPECT_TRUE(happens(small.get_future())) << "large tasks occupy all threads";
  let_go.set_value();
  EXPECT_TRUE(happens(ended.get_future())) << "large tasks have not run within a minute";
}

}  // namespace
}  // namespace motley::server
