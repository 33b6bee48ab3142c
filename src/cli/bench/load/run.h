#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/system/clock.h"
#include "cli/bench/load/plan.h"

namespace motley::cli {

// The outcome of one request.
struct Flight {
  TimePoint due;  // when it should have been sent, so that waiting counts
  TimePoint first;
  TimePoint last;
  std::int64_t prompt_tokens = 0;
  std::int64_t tokens = 0;  // that came
  // Seconds between consecutive tokens, or pieces of a stream.
  std::vector<float> gaps;
  std::optional<std::size_t> adapter;
  std::optional<Error> error;
};

// Receives the events of one request, not concurrently.
class FlightObserver {
 public:
  virtual ~FlightObserver() = default;
  virtual void token() = 0;
  // The last call. `tokens`: their number, if they did not arrive one by one.
  virtual void ended(std::optional<Error> error, std::optional<std::int64_t> tokens = {}) = 0;
};

// Serves a load.
class LoadTarget {
 public:
  virtual ~LoadTarget() = default;

  virtual std::size_t adapters() const = 0;
  virtual std::int64_t vocabulary() const = 0;
  // Sends the request and returns. ended() of the observer is always called; the observer must live
  // until then.
  virtual void send(PlannedRequest request, FlightObserver& observer) = 0;
};

// The number of requests, and their arrival.
struct LoadSize {
  // A constant number of running requests, or a rate of arrivals per second.
  enum class Arrivals : std::uint8_t { closed, poisson };

  Arrivals arrivals = Arrivals::closed;
  double level = 1;
  std::int64_t requests = 0;  // 0: as many as begin within the duration
  Duration duration{};
};

struct LoadResult {
  std::deque<Flight> flights;  // in order of their begin
  double seconds = 0;          // from the begin of the first to the end of the last
};

// Returns when all requests have ended.
LoadResult run_load(LoadTarget& target, const LoadShape& shape, const LoadSize& size,
                    const Clock& clock);

}  // namespace motley::cli
