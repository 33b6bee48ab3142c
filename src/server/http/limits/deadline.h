#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include <boost/asio/any_io_executor.hpp>

#include "server/http/limits/timers.h"

namespace motley::server {

// The time by which what a connection waits for must come. Used on the connection's executor.
class Deadline {
 public:
  explicit Deadline(Timers& timers) : timers_(timers) {}

  // `due` is called when a time has come; see Timers::make_timer().
  void start(const boost::asio::any_io_executor& executor, std::function<void()> due) {
    timer_ = timers_.make_timer(executor, std::move(due));
  }
  void stop() {
    clear();
    timer_.reset();
  }

  void set(std::chrono::nanoseconds after) {
    expired_ = false;
    time_ = timers_.now() + after;
    timer_->set(*time_);
  }
  void shorten(std::chrono::nanoseconds after) {
    if (left() > after) set(after);
  }
  void clear() {
    time_.reset();
    if (timer_ != nullptr) timer_->clear();
  }

  // 0 where none is set.
  std::chrono::nanoseconds left() const {
    return time_ ? *time_ - timers_.now() : std::chrono::nanoseconds(0);
  }
  bool is_due() const { return time_ && left() <= std::chrono::nanoseconds(0); }
  void expire() {
    time_.reset();
    expired_ = true;
  }
  // Until the next is set. An operation that has just ended, and the next of which has not begun
  // yet, is not cancelled: so each looks at this before it begins.
  bool expired() const { return expired_; }

 private:
  Timers& timers_;
  std::unique_ptr<Timer> timer_;
  std::optional<TimePoint> time_;
  bool expired_ = false;
};

}  // namespace motley::server
