#include "server/http/limits/timers.h"

#include <optional>
#include <utility>

#include <boost/asio/steady_timer.hpp>

namespace motley::server {
namespace {

// Connections set a time for each read and write and rarely reach it, so a wait of Asio's that ends
// too early is cheaper than one that is replaced each time.
class SteadyTimer final : public Timer {
 public:
  SteadyTimer(const boost::asio::any_io_executor& executor, std::function<void()> expired)
      : state_(std::make_shared<State>(executor, std::move(expired))) {}
  ~SteadyTimer() override {
    state_->time.reset();
    boost::system::error_code none;
    state_->timer.cancel(none);
  }
  SteadyTimer(const SteadyTimer&) = delete;
  SteadyTimer& operator=(const SteadyTimer&) = delete;

  void set(TimePoint time) override {
    state_->time = time;
    if (!state_->armed || time < state_->timer.expiry()) arm(state_);
  }
  void clear() override { state_->time.reset(); }

 private:
  struct State {
    State(const boost::asio::any_io_executor& executor, std::function<void()> when_expired)
        : timer(executor), expired(std::move(when_expired)) {}

    boost::asio::steady_timer timer;
    std::function<void()> expired;
    std::optional<TimePoint> time;
    bool armed = false;
  };

  static void arm(const std::shared_ptr<State>& state) {
    state->armed = true;
    state->timer.expires_at(*state->time);
    state->timer.async_wait([state](const boost::system::error_code& failure) {
      if (failure) return;
      state->armed = false;
      if (!state->time) return;
      if (std::chrono::steady_clock::now() < *state->time) return arm(state);
      state->time.reset();
      state->expired();
    });
  }

  std::shared_ptr<State> state_;
};

}  // namespace

std::unique_ptr<Timer> SteadyTimers::make_timer(const boost::asio::any_io_executor& executor,
                                                std::function<void()> expired) {
  return std::make_unique<SteadyTimer>(executor, std::move(expired));
}

}  // namespace motley::server
