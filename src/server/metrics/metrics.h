#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/system/watchdog.h"
#include "engine/requests/pauses.h"
#include "engine/stats/stats.h"
#include "server/http/connections/http_stats.h"

namespace motley::server {

// Answers by route and status. Only known routes are counted, so the set stays small.
class HttpCounts {
 public:
  void count(std::string_view route, int status);
  // Counts a request that the server refuses for want of room: `too_long` is more than one request
  // may take, `busy` more than is left. The engine counts what its queue refuses.
  void refuse(ErrorCode why);
  std::map<std::string, std::uint64_t> refusals() const;
  std::map<std::pair<std::string, int>, std::uint64_t> snapshot() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, std::uint64_t> counts_;
  std::map<std::string, std::uint64_t> refusals_ = {{"memory", 0}, {"too_large", 0}};
};

struct ServerFigures {
  std::string_view model;        // the base's id
  double now = 0;                // in seconds since the epoch
  std::uint64_t used_bytes = 0;  // memory of requests, besides the model's
  std::uint64_t limit_bytes = 0;
};

// The text of GET /metrics, in Prometheus' format. Only a bounded number of adapters has lines of
// their own, however many there are. What replicas count has a line for each; what gateways read,
// and what the server counts, is of all together.
std::string metrics_page(const engine::Stats& stats, const HttpCounts& http,
                         const ServerFigures& server);
// Further metrics of the process; the watchdog may be null.
std::string process_metrics(const Watchdog* watchdog);
// Further metrics of pauses.
std::string pause_metrics(const engine::Pauses& pauses);
// Further metrics of connections and their requests' memory.
std::string http_metrics(const HttpStats& stats);

}  // namespace motley::server
