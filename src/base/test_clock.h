#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <source_location>
#include <string_view>

#include "base/system/clock.h"
#include "base/test_waits.h"

namespace motley::test {

// A clock that a test sets. Threads that wait on it with a deadline go on when the test has
// advanced it that far, and the test can wait until they wait. Thread-safe.
class ScriptedClock final : public Clock {
 public:
  TimePoint now() const override { return TimePoint(Duration(now_.load())); }
  bool wait_until(std::condition_variable& changed, std::unique_lock<std::mutex>& held,
                  TimePoint deadline, FunctionRef<bool()> condition) const override {
    bool waits = false;
    bool holds = condition();
    // advance() does not notify `changed`, so the time is read again after short waits.
    for (; !holds && now() < deadline; holds = condition()) {
      if (!waits) monitor_.change([&] { ++waiting_[deadline]; });
      waits = true;
      changed.wait_for(held, std::chrono::milliseconds(1));
    }
    if (waits) monitor_.change([&] { --waiting_[deadline]; });
    return holds;
  }

  void advance(Duration duration) { now_ += duration.count(); }
  // Waits until this many threads wait for exactly this time; TimePoint::max(): without a deadline.
  void wait_for_threads(int threads, TimePoint deadline, std::string_view event,
                        std::source_location place = std::source_location::current()) const {
    monitor_.wait(event, [&] { return waiting_[deadline] == threads; }, place);
  }

 private:
  mutable Monitor monitor_;
  std::atomic<Duration::rep> now_{0};
  mutable std::map<TimePoint, int> waiting_;  // threads, by deadline
};

}  // namespace motley::test
