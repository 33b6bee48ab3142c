#pragma once

#include <optional>

#include "base/system/clock.h"
#include "engine/residency/residency.h"
#include "engine/sequences/sequence.h"
#include "engine/stats/stats.h"

namespace motley::engine {

// What is counted of requests, their choices and tokens: for the engine, and for each adapter or
// the base. Internal requests appear nowhere. Does not allocate.
class RequestCounts {
 public:
  // Each of `ranks` has its numbers.
  RequestCounts(Residency* residency, std::size_t ranks);

  Stats& all() { return stats_; }
  const Stats& all() const { return stats_; }
  // Where a request and its tokens are counted.
  Stats& of(const Request& request) { return request.internal ? uncounted_ : stats_; }

  // The first of its sequences begins.
  void count_begun(const Job& job);
  // What a sequence of so many tokens finds in the prefix cache as it begins.
  void count_prefix(const Job& job, std::size_t tokens, const SequencePages::Adopted& found);
  // Before the token is added to the choice.
  void count_token(const Job& job, const Sequence& sequence, TimePoint now);
  void count_choice(const Job& job, FinishReason reason);
  // All its choices have finished.
  void count_finished(const Job& job, TimePoint now);
  void count_failed(const Job& job);
  // Whether to report it: each adapter of the request, or the base, is reported once a minute.
  bool count_overflow(const Job& job, TimePoint now);

 private:
  // Calls count(traffic) for the base, or for each adapter of the request.
  template <class Count>
  void count_traffic(const Job& job, Count count) {
    if (job.request.internal) return;
    if (job.adapters.entries().empty()) count(stats_.base_traffic);
    for (AdapterEntry* const entry : job.adapters.entries()) count(residency_->traffic_of(*entry));
  }
  // Publishes the traffic of its adapters, even if no step counts its sequences again.
  void note_adapters(const Job& job) {
    for (AdapterEntry* const entry : job.adapters.entries()) residency_->note(*entry);
  }

  Residency* residency_;
  Stats stats_;
  Stats uncounted_;                             // of internal requests
  std::optional<TimePoint> overflow_reported_;  // for the base
};

}  // namespace motley::engine
