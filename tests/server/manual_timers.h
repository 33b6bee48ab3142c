#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <boost/asio/post.hpp>

#include "base/check.h"
#include "server/http/limits/timers.h"

namespace motley::server {

// A time that stands still until a test advances it. Must outlive the server.
class ManualTimers final : public Timers {
 public:
  TimePoint now() const override {
    const std::lock_guard lock(mutex_);
    return now_;
  }

  std::unique_ptr<Timer> make_timer(const boost::asio::any_io_executor& executor,
                                    std::function<void()> expired) override {
    auto state = std::make_shared<State>(
        State{.executor = executor, .expired = std::move(expired), .time = std::nullopt});
    const std::lock_guard lock(mutex_);
    states_.push_back(state);
    return std::make_unique<ManualTimer>(*this, std::move(state));
  }

  // Timers whose time has passed then call back.
  void advance(Duration duration) {
    const std::lock_guard lock(mutex_);
    now_ += duration;
    for (const auto& state : states_) {
      if (!state->time || *state->time > now_) continue;
      state->time.reset();
      boost::asio::post(state->executor, [state] { state->expired(); });
    }
  }

  // Returns when so many timers are set to exactly so much later than now.
  void wait_for_timers(std::size_t count, Duration after) {
    std::unique_lock lock(mutex_);
    const auto set = [&] {
      return static_cast<std::size_t>(std::ranges::count_if(
                 states_, [&](const auto& state) { return state->time == now_ + after; })) == count;
    };
    MOTLEY_CHECK(changed_.wait_for(lock, std::chrono::seconds(60), set),
                 "a server that has not set the awaited timers within a minute");
  }

 private:
  struct State {
    boost::asio::any_io_executor executor;
    std::function<void()> expired;
    std::optional<TimePoint> time;
  };

  class ManualTimer final : public Timer {
   public:
    ManualTimer(ManualTimers& timers, std::shared_ptr<State> state)
        : timers_(timers), state_(std::move(state)) {}
    ~ManualTimer() override {
      const std::lock_guard lock(timers_.mutex_);
      std::erase(timers_.states_, state_);
    }
    ManualTimer(const ManualTimer&) = delete;
    ManualTimer& operator=(const ManualTimer&) = delete;

    void set(TimePoint time) override { change(time); }
    void clear() override { change(std::nullopt); }

   private:
    void change(std::optional<TimePoint> time) {
      const std::lock_guard lock(timers_.mutex_);
      state_->time = time;
      // One that has passed already.
      if (time && *time <= timers_.now_) {
        state_->time.reset();
        boost::asio::post(state_->executor, [state = state_] { state->expired(); });
      }
      timers_.changed_.notify_all();
    }

    ManualTimers& timers_;
    std::shared_ptr<State> state_;
  };

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  TimePoint now_{};
  std::vector<std::shared_ptr<State>> states_;
};

}  // namespace motley::server
