#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/system/clock.h"
#include "cli/bench/load/plan.h"

namespace motley::cli {

// What became of one request.
struct Flight {
  TimePoint due;  // when it was to be sent: waiting for that counts
  TimePoint first;
  TimePoint last;
  std::int64_t prompt_tokens = 0;
  std::int64_t tokens = 0;  // that came
  // Seconds between one token, or one piece of a stream, and the next.
  std::vector<float> gaps;
  std::optional<std::size_t> adapter;
  std::optional<Error> error;
};

// Hears of one request, from one thread at a time.
class FlightObserver {
 public:
  virtual ~FlightObserver() = default;
  virtual void token() = 0;
  // The last call. `tokens`: how many there were, where they did not come one by one.
  virtual void ended(std::optional<Error> error, std::optional<std::int64_t> tokens = {}) = 0;
};

// What serves a load.
class LoadTarget {
 public:
  virtual ~LoadTarget() = default;

  virtual std::size_t adapters() const = 0;
  virtual std::int64_t vocabulary() const = 0;
  // Sends the request and returns. The observer hears of its end, whatever happens, and lives until
  // then.
  virtual void send(PlannedRequest request, FlightObserver& observer) = 0;
};

// When requests come, and how many.
struct LoadSize {
  // As many are always under way, or as many come a second on average.
  enum class Arrivals : std::uint8_t { closed, poisson };

  Arrivals arrivals = Arrivals::closed;
  double level = 1;
  std::int64_t requests = 0;  // 0: as many as begin within the duration
  Duration duration{};
};

struct LoadResult {
  std::deque<Flight> flights;  // in order of their beginning
  double seconds = 0;          // from the first one's beginning to the last one's end
};

// Returns when all requests have ended.
LoadResult run_load(LoadTarget& target, const LoadShape& shape, const LoadSize& size,
                    const Clock& clock);

}  // namespace motley::cli
