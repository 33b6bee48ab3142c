#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <mutex>
#include <source_location>
#include <string>
#include <string_view>
#include <thread>

#include "base/cat.h"

// Waits of tests. Each is for an event, is bounded, and names the event if it does not happen. The
// process ends then: other threads of the test wait as well, so it cannot be continued.
namespace motley::test {

inline constexpr std::chrono::milliseconds max_wait = std::chrono::seconds(60);

[[noreturn]] inline void give_up(std::string_view event, std::source_location place) {
  const std::string line =
      cat(place.file_name(), ":", place.line(), ": no such event within the bound: ", event, "\n");
  std::fputs(line.c_str(), stderr);
  std::fflush(stderr);
  std::abort();
}

// A lock and its condition variable, for state that several threads of a test share.
class Monitor {
 public:
  explicit Monitor(std::chrono::milliseconds bound = max_wait) : bound_(bound) {}

  // Calls change() under the lock, and wakes the threads that wait. Returns its result.
  template <class Change>
  auto change(Change change) {
    const std::lock_guard held(lock_);
    // Even if it throws; a thread that wakes needs the lock first.
    changed_.notify_all();
    return change();
  }
  // Calls look() under the lock, and returns its result.
  template <class Look>
  auto look(Look look) const {
    const std::lock_guard held(lock_);
    return look();
  }
  template <class Condition>
  void wait(std::string_view event, Condition condition,
            std::source_location place = std::source_location::current()) const {
    std::unique_lock held(lock_);
    if (!changed_.wait_for(held, bound_, condition)) give_up(event, place);
  }

 private:
  const std::chrono::milliseconds bound_;
  mutable std::mutex lock_;
  mutable std::condition_variable changed_;
};

// Happens once.
class Event {
 public:
  explicit Event(std::chrono::milliseconds bound = max_wait) : monitor_(bound) {}

  void set() {
    monitor_.change([this] { happened_ = true; });
  }
  bool has_happened() const {
    return monitor_.look([this] { return happened_; });
  }
  void wait(std::string_view event,
            std::source_location place = std::source_location::current()) const {
    monitor_.wait(event, [this] { return happened_; }, place);
  }

 private:
  Monitor monitor_;
  bool happened_ = false;
};

// Threads that wait for each other, `threads` at a time.
class Meeting {
 public:
  explicit Meeting(int threads) : threads_(threads) {}

  void arrive_and_wait(std::string_view event,
                       std::source_location place = std::source_location::current()) {
    const int mine = monitor_.change([this] { return arrived_++ / threads_; });
    monitor_.wait(event, [&] { return arrived_ >= (mine + 1) * threads_; }, place);
  }

 private:
  const int threads_;
  Monitor monitor_;
  int arrived_ = 0;
};

// The future's value.
template <class Value>
Value get(std::future<Value>& future, std::string_view event,
          std::source_location place = std::source_location::current()) {
  if (future.wait_for(max_wait) != std::future_status::ready) give_up(event, place);
  return future.get();
}
template <class Value>
Value get(std::future<Value>&& future, std::string_view event,
          std::source_location place = std::source_location::current()) {
  return get(future, event, place);
}
template <class Value>
Value get(std::promise<Value>& promise, std::string_view event,
          std::source_location place = std::source_location::current()) {
  std::future<Value> future = promise.get_future();
  return get(future, event, place);
}

// Calls body() on another thread, and waits until it returns.
template <class Body>
void call_within_bound(std::string_view event, Body body,
                       std::source_location place = std::source_location::current()) {
  Event returned;
  std::thread caller([&] {
    body();
    returned.set();
  });
  returned.wait(event, place);
  caller.join();
}

// Waits for a condition that notifies no one, such as a counter of the code under test: it is asked
// again after short waits.
template <class Condition>
void wait_for(std::string_view event, Condition condition,
              std::source_location place = std::source_location::current()) {
  std::mutex lock;
  std::condition_variable never;
  std::unique_lock held(lock);
  for (auto left = max_wait; !condition(); left -= std::chrono::milliseconds(1)) {
    if (left.count() == 0) give_up(event, place);
    never.wait_for(held, std::chrono::milliseconds(1));
  }
}

}  // namespace motley::test
