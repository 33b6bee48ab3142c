#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "engine/requests/events.h"
#include "engine/stats/metrics.h"

namespace motley::server {

// What the holder of a key has asked for and got.
struct HolderFigures {
  std::uint64_t requests = 0;  // generation requests that were answered, however
  std::uint64_t refused = 0;   // of these, for want of room
  std::uint64_t prompt_tokens = 0;
  std::uint64_t cached_tokens = 0;  // of prompts, found in the prefix cache
  std::uint64_t generated_tokens = 0;
};

using HolderMetric = engine::Metric<HolderFigures, std::uint64_t>;

namespace metrics {

using engine::MetricKind::counter;

inline constexpr auto holders = std::to_array<HolderMetric>({
    {&HolderFigures::requests, counter, "motley_holder_requests_total",
     "Generation requests by the holder of their key."},
    {&HolderFigures::refused, counter, "motley_holder_requests_refused_total",
     "Of these, refused for want of room."},
    {&HolderFigures::prompt_tokens, counter, "motley_holder_prompt_tokens_total",
     "Tokens of their prompts."},
    {&HolderFigures::cached_tokens, counter, "motley_holder_cached_tokens_total",
     "Of these, found in the prefix cache."},
    {&HolderFigures::generated_tokens, counter, "motley_holder_generated_tokens_total",
     "Tokens of their answers."},
});
static_assert(engine::complete<HolderMetric>({holders}));

}  // namespace metrics

// Counts by holder. Files of keys are read again, and a counter never falls: beyond a number of
// names, new ones are counted together. Thread-safe.
class HolderCounts {
 public:
  using Figures = std::map<std::string, HolderFigures, std::less<>>;

  static constexpr std::size_t max_names = 1024;
  static constexpr std::string_view others = "(others)";

  void count(std::string_view holder, const engine::Usage& usage, bool refused);
  Figures snapshot() const;

 private:
  mutable std::mutex mutex_;
  Figures figures_;
};

// The lines of GET /metrics; nothing without holders.
std::string holder_metrics(const HolderCounts::Figures& figures);

}  // namespace motley::server
