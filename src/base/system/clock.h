#pragma once

#include <chrono>

namespace motley {

using Duration = std::chrono::nanoseconds;
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;

// The source of time; tests pass a scripted one.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint now() const = 0;
};

class SteadyClock final : public Clock {
 public:
  TimePoint now() const override { return std::chrono::steady_clock::now(); }
};

inline double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace motley
