#include "cli/bench/load/run.h"

#include <condition_variable>
#include <mutex>
#include <utility>

namespace motley::cli {
namespace {

// Counts running requests; a thread may wait for one to end.
class InFlight {
 public:
  void begin() {
    const std::lock_guard held(lock_);
    ++count_;
  }
  void end() {
    const std::lock_guard held(lock_);
    --count_;
    // Under the lock, because the waiter may destroy this as soon as it is released.
    ended_.notify_one();
  }
  void wait_below(double most) {
    std::unique_lock held(lock_);
    ended_.wait(held, [&] { return static_cast<double>(count_) < most; });
  }
  void wait_until(TimePoint time) {
    std::unique_lock held(lock_);
    ended_.wait_until(held, time, [] { return false; });
  }

 private:
  std::mutex lock_;
  std::condition_variable ended_;
  std::int64_t count_ = 0;
};

class Recorder final : public FlightObserver {
 public:
  Recorder(Flight& flight, InFlight& in_flight, const Clock& clock)
      : flight_(&flight), in_flight_(&in_flight), clock_(&clock) {}

  void token() override {
    const TimePoint now = clock_->now();
    if (flight_->tokens++ == 0) {
      flight_->first = now;
    } else {
      flight_->gaps.push_back(static_cast<float>(seconds(now - flight_->last)));
    }
    flight_->last = now;
  }

  void ended(std::optional<Error> error, std::optional<std::int64_t> tokens) override {
    if (tokens) flight_->tokens = *tokens;
    flight_->error = std::move(error);
    if (flight_->tokens == 0) flight_->first = flight_->last = clock_->now();
    in_flight_->end();
  }

 private:
  Flight* flight_;
  InFlight* in_flight_;
  const Clock* clock_;
};

}  // namespace

LoadResult run_load(LoadTarget& target, const LoadShape& shape, const LoadSize& size,
                    const Clock& clock) {
  LoadPlan plan(shape, target.adapters(), target.vocabulary());
  LoadResult result;
  std::deque<Recorder> recorders;
  InFlight in_flight;
  const bool closed = size.arrivals == LoadSize::Arrivals::closed;
  const TimePoint start = clock.now();
  TimePoint due = start;
  for (;;) {
    if (closed) {
      in_flight.wait_below(size.level);
      due = clock.now();
    } else {
      if (!recorders.empty()) due += plan.gap(size.level);
      in_flight.wait_until(due);
    }
    const bool enough = size.requests > 0
                            ? std::cmp_greater_equal(result.flights.size(), size.requests)
                            : due - start >= size.duration;
    if (enough) break;
    PlannedRequest request = plan.next();
    Flight& flight = result.flights.emplace_back();
    flight.due = due;
    flight.prompt_tokens = static_cast<std::int64_t>(request.tokens.size());
    flight.gaps.reserve(static_cast<std::size_t>(request.max_tokens));
    flight.adapter = request.adapter;
    in_flight.begin();
    target.send(std::move(request), recorders.emplace_back(flight, in_flight, clock));
  }
  in_flight.wait_below(1);
  TimePoint end = start;
  for (const Flight& flight : result.flights) end = std::max(end, flight.last);
  result.seconds = seconds(end - start);
  return result;
}

}  // namespace motley::cli
