#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/system/clock.h"
#include "grammar/stats.h"

namespace motley::engine {

// In seconds.
inline constexpr std::array duration_bounds = {
    0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05,  0.075, 0.1,
    0.25,  0.5,    1.0,   2.5,    5.0,  10.0,  30.0, 60.0, 120.0, 300.0, 600.0};
inline constexpr std::array token_bounds = {1.0,   2.0,   5.0,   10.0,   20.0,   50.0,
                                            100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0,
                                            1e4,   2e4,   5e4,   1e5,    2e5,    5e5};

// Values counted by upper bound; the last count is of those above all bounds.
template <const auto& upper_bounds>
struct Histogram {
  static constexpr const auto& bounds = upper_bounds;

  std::array<std::uint64_t, upper_bounds.size() + 1> counts = {};
  std::uint64_t count = 0;
  double sum = 0;

  void observe(double value) {
    std::size_t at = 0;
    while (at < bounds.size() && value > bounds[at]) ++at;
    ++counts[at];
    ++count;
    sum += value;
  }
  Histogram& operator+=(const Histogram& other) {
    for (std::size_t i = 0; i < counts.size(); ++i) counts[i] += other.counts[i];
    count += other.count;
    sum += other.sum;
    return *this;
  }
};

struct DurationHistogram : Histogram<duration_bounds> {
  using Histogram::observe;
  void observe(Duration duration) { observe(seconds(duration)); }
};
using TokenHistogram = Histogram<token_bounds>;

// The same without bounds.
struct DurationSum {
  std::uint64_t count = 0;
  double sum = 0;  // seconds

  void observe(Duration duration) {
    ++count;
    sum += seconds(duration);
  }
  DurationSum& operator+=(const DurationSum& other) {
    count += other.count;
    sum += other.sum;
    return *this;
  }
};

// The requests of one adapter. A request with several adapters counts for each of them. Each member
// has a row in engine/stats/metrics.h.
struct AdapterTraffic {
  std::uint64_t finished_stop = 0;  // choices, by reason
  std::uint64_t finished_length = 0;
  std::uint64_t finished_cancelled = 0;
  std::uint64_t failed = 0;         // requests
  std::uint64_t prompt_tokens = 0;  // of requests that have begun, cached ones included
  std::uint64_t generated_tokens = 0;
  DurationSum time_to_first_token;
  DurationSum time_per_token;
};

// What requests find under a name; docs/design/engine.md maps it to the states of adapters in the
// modules.
enum class AdapterState : std::uint8_t {
  absent,   // known; its bytes must be loaded before a request can use it
  loading,  // on their way
  ready,    // where steps read them
  closing,  // unloading: serves accepted requests only
};

struct AdapterInfo {
  std::string name;
  std::string path;
  std::string version;   // as its maker names it, or of its content
  std::string checksum;  // of a pushed one
  AdapterState state = AdapterState::absent;
  bool pinned = false;
  int rank = 0;                           // the largest of its factors
  std::vector<std::string_view> modules;  // the kinds of maps that it changes: "q_proj", ...
  // Where its bytes are now: in the memory that steps read, and in host memory before a GPU's.
  bool on_device = false;
  bool in_host = false;
  std::uint64_t pages = 0;              // that it takes in adapter memory
  std::uint64_t bytes = 0;              // the same
  bool broken = false;                  // its files could not be read again
  std::uint64_t non_finite_logits = 0;  // requests that failed because of it
  std::int64_t running = 0;             // sequences
  std::int64_t waiting = 0;
  // Null if it has had no request, or counts with the others (Stats::other_adapters).
  std::shared_ptr<const AdapterTraffic> traffic = {};
};

// Of one of several ranks that compute a model together: memory for its parts of adapters.
struct RankStats {
  std::uint64_t adapter_pages = 0;
  std::uint64_t adapter_pages_free = 0;
};

// Each member has a row in engine/stats/metrics.h. Counters begin at the engine's start.
struct Figures {
  std::int64_t waiting = 0;               // sequences that have not begun, or were preempted
  std::int64_t waiting_for_adapters = 0;  // of these
  std::int64_t running = 0;               // sequences

  std::int64_t page_tokens = 0;
  std::int64_t kv_pages = 0;
  std::int64_t kv_pages_used = 0;    // by running sequences
  std::int64_t kv_pages_cached = 0;  // owned by no sequence, but valid for prefix hits
  std::uint64_t prefix_lookup_tokens = 0;
  std::uint64_t prefix_hit_tokens = 0;
  // Tokens whose pages matched, and which were computed again because no state was left.
  std::uint64_t prefix_state_missed_tokens = 0;
  // Of models that keep states: places for snapshots, on the devices and on the host.
  std::int64_t snapshots = 0;
  std::int64_t snapshots_used = 0;
  std::int64_t host_snapshots = 0;
  std::int64_t host_snapshots_used = 0;
  std::uint64_t snapshot_loads = 0;  // sequences that began with one that was on the host alone

  std::uint64_t requests = 0;       // accepted
  std::uint64_t refused_queue = 0;  // requests that found no place in the queue
  std::uint64_t finished_stop = 0;  // choices, by reason
  std::uint64_t finished_length = 0;
  std::uint64_t finished_cancelled = 0;
  std::uint64_t failed = 0;             // requests
  std::uint64_t non_finite_logits = 0;  // of these, those of the base itself
  std::uint64_t prompt_tokens = 0;      // computed, without those found in the prefix cache
  std::uint64_t begun_tokens = 0;       // of prompts of requests that have begun
  std::uint64_t generated_tokens = 0;
  std::uint64_t preemptions = 0;
  std::uint64_t steps = 0;
  std::uint64_t broken_invariants = 0;

  DurationHistogram queue_time;  // from acceptance until the request begins to run
  DurationHistogram time_to_first_token;
  DurationHistogram time_per_token;  // between the tokens of a choice
  DurationHistogram request_time;
  // From where a request begins to run: to its first token, from there to its last, and to its end.
  DurationHistogram prefill_time;
  DurationHistogram decode_time;
  DurationHistogram running_time;
  DurationHistogram step_time;
  TokenHistogram prompt_lengths;  // of requests that have finished
  TokenHistogram answer_lengths;  // of these, all choices together

  std::uint64_t adapter_loads = 0;
  std::uint64_t adapter_load_failures = 0;
  std::uint64_t adapter_replacements = 0;
  DurationHistogram adapter_load_time;  // of a load from files, or from host memory
  std::uint64_t adapter_evictions = 0;
  std::uint64_t adapter_pages = 0;
  std::uint64_t adapter_pages_free = 0;
  std::uint64_t adapter_pages_pinned = 0;    // in use
  std::uint64_t adapter_pages_replaced = 0;  // of these, of content that others have replaced
  std::uint64_t adapter_page_bytes = 0;
  // Of all ranks: pinned so far, as the source of devices' pages.
  std::uint64_t adapter_host_bytes = 0;
  std::uint64_t adapter_host_limit_bytes = 0;  // at most
  DurationHistogram adapter_wait;              // of requests whose adapters were not ready
};

// A snapshot for metrics.
struct Stats : Figures {
  TimePoint taken;

  std::vector<AdapterInfo> adapters;  // in order of name
  AdapterTraffic base_traffic;        // of requests without adapters
  AdapterTraffic other_adapters;      // of adapters that came after the limit of counted ones

  grammar::Stats grammars;

  std::vector<RankStats> ranks;  // empty: one computes alone

  // Of several engines behind one, each by itself; the fields above are then the sums.
  std::vector<Stats> replicas;
  bool stopped = false;  // one of these, by an error of its device
};

}  // namespace motley::engine
