#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "engine/stats.h"

namespace motley::server {

// Answers by route and status. Routes are ours, so the set stays small.
class HttpCounts {
 public:
  void count(std::string_view route, int status);
  std::map<std::pair<std::string, int>, std::uint64_t> snapshot() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, std::uint64_t> counts_;
};

// The text of GET /metrics, in Prometheus' format. `now` is in seconds of the epoch. However many
// adapters there are, only those with the most pages get a line of their own.
std::string metrics_page(const engine::Stats& stats, const HttpCounts& http, double now);

}  // namespace motley::server
