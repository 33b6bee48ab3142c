#include "server/metrics/metrics.h"

#include <algorithm>

#include "base/cat.h"
#include "server/metrics/page.h"
#include "server/metrics/page_parts.h"

namespace motley::server {

using engine::Stats;

void HttpCounts::count(std::string_view route, int status) {
  const std::lock_guard lock(mutex_);
  ++counts_[{std::string(route), status}];
}

void HttpCounts::refuse(ErrorCode why) {
  const std::lock_guard lock(mutex_);
  ++refusals_[why == ErrorCode::too_long ? "too_large" : "memory"];
}

std::map<std::string, std::uint64_t> HttpCounts::refusals() const {
  const std::lock_guard lock(mutex_);
  return refusals_;
}

std::map<std::pair<std::string, int>, std::uint64_t> HttpCounts::snapshot() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

std::string metrics_page(const engine::Stats& stats, const HttpCounts& http,
                         const ServerFigures& server) {
  MetricsPage page;
  EngineMetrics engines(page, stats);
  if (!stats.replicas.empty())
    engines.gauge("motley_replica_up", "Whether the replica serves; 0: its device has failed.",
                  [](const Stats& replica) { return replica.stopped ? 0 : 1; });
  engines.rows(engine::metrics::requests);
  engines.rows(engine::metrics::memory);
  write_adapters(engines);
  const bool has_ranks =
      !stats.ranks.empty() ||
      std::ranges::any_of(stats.replicas, [](const Stats& one) { return !one.ranks.empty(); });
  // Ranks have parts of the same adapters, which may take different numbers of pages.
  if (has_ranks) {
    engines.rows<engine::RankMetric>(engine::metrics::ranks,
                                     [](const Stats& of, const auto& write) {
                                       for (std::size_t rank = 0; rank < of.ranks.size(); ++rank)
                                         write(cat("rank=\"", rank, "\""), of.ranks[rank]);
                                     });
  }
  engines.rows<engine::GrammarMetric>(
      engine::metrics::grammars,
      [](const Stats& of, const auto& write) { write({}, of.grammars); });
  page.family("motley_http_requests_total", "counter", "Answers by route and status.");
  for (const auto& [key, count] : http.snapshot())
    page.sample(cat("route=\"", key.first, "\",status=\"", key.second, "\""), count);
  page.family("motley_requests_refused_total", "counter",
              "Requests refused for want of room, by reason.");
  page.sample("reason=\"queue\"", stats.refused_queue);
  for (const auto& [reason, count] : http.refusals())
    page.sample(cat("reason=\"", reason, "\""), count);
  page.gauge("motley_request_memory_bytes", "Memory that requests are charged for.",
             server.used_bytes);
  page.gauge("motley_request_memory_limit_bytes", "At most.", server.limit_bytes);
  return std::move(page).take() + gateway_metrics(stats, server.model, server.now);
}

std::string http_metrics(const HttpStats& stats) {
  MetricsPage page;
  page.gauge("motley_http_connections", "Connections that are open.", stats.connections);
  page.family("motley_http_connections_refused_total", "counter",
              "Connections turned away because there were too many, in all or from their address.");
  page.sample("limit=\"all\"", stats.refused_full);
  page.sample("limit=\"address\"", stats.refused_address);
  page.counter("motley_http_connections_evicted_total",
               "Connections closed to make room while they waited for their client.",
               stats.evicted);
  page.gauge("motley_http_body_bytes", "Memory that the bodies of requests hold.",
             stats.body_bytes);
  return std::move(page).take();
}

}  // namespace motley::server
