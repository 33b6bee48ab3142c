#pragma once

#include <functional>
#include <memory>

#include <boost/asio/any_io_executor.hpp>

#include "base/system/clock.h"

namespace motley::server {

// Calls back once when its time has passed.
class Timer {
 public:
  virtual ~Timer() = default;
  // Replaces a time that was set before.
  virtual void set(TimePoint time) = 0;
  virtual void clear() = 0;
};

// The time by which connections are limited. Tests advance it by hand.
class Timers : public Clock {
 public:
  // `expired` runs on the executor, from which alone the timer may be used. It may run once more
  // after set(), clear() or the timer's end, if the time had passed before.
  virtual std::unique_ptr<Timer> make_timer(const boost::asio::any_io_executor& executor,
                                            std::function<void()> expired) = 0;
};

class SteadyTimers final : public Timers {
 public:
  TimePoint now() const override { return std::chrono::steady_clock::now(); }
  std::unique_ptr<Timer> make_timer(const boost::asio::any_io_executor& executor,
                                    std::function<void()> expired) override;
};

}  // namespace motley::server
