#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "base/function_ref.h"

namespace motley {

using Duration = std::chrono::nanoseconds;
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;

// The source of time; tests pass a scripted one.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint now() const = 0;

  // Waits until the condition holds or this clock has reached the deadline; TimePoint::max():
  // without one. The condition is asked under the lock, whenever `changed` is notified. Returns
  // whether it holds.
  virtual bool wait_until(std::condition_variable& changed, std::unique_lock<std::mutex>& held,
                          TimePoint deadline, FunctionRef<bool()> condition) const {
    if (deadline != TimePoint::max()) return changed.wait_for(held, deadline - now(), condition);
    changed.wait(held, condition);
    return true;
  }
};

class SteadyClock final : public Clock {
 public:
  TimePoint now() const override { return std::chrono::steady_clock::now(); }
};

// The one that a program uses where its options name no other.
inline const Clock& clock_or_steady(const Clock* clock) {
  static constinit const SteadyClock steady;
  return clock == nullptr ? steady : *clock;
}

inline double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace motley
