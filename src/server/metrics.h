#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "base/system/watchdog.h"
#include "engine/stats.h"
#include "server/http/http_stats.h"

namespace motley::server {

// Answers by route and status. Routes are ours, so the set stays small.
class HttpCounts {
 public:
  void count(std::string_view route, int status);
  // Work that was refused; reasons are ours too.
  void refuse(std::string_view reason);
  std::map<std::string, std::uint64_t> refusals() const;
  std::map<std::pair<std::string, int>, std::uint64_t> snapshot() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, std::uint64_t> counts_;
  std::map<std::string, std::uint64_t> refusals_ = {{"memory", 0}, {"too_large", 0}};
};

// What requests may take beside the model's memory.
struct RequestMemory {
  std::uint64_t used_bytes = 0;
  std::uint64_t limit_bytes = 0;
};

// The text of GET /metrics, in Prometheus' format. `now` is in seconds of the epoch. However many
// adapters there are, only those with the most pages get a line of their own.
std::string metrics_page(const engine::Stats& stats, const HttpCounts& http, double now,
                         const RequestMemory& memory = {});
// More of that page: what befell the process; the watchdog may be null.
std::string process_metrics(const Watchdog* watchdog);
// More of that page: connections and what their requests hold.
std::string http_metrics(const HttpStats& stats);

}  // namespace motley::server
