#pragma once

#include <string>
#include <string_view>

#include "engine/stats/stats.h"
#include "server/metrics/page.h"

// Parts of metrics_page() that have files of their own.
namespace motley::server {

// What engines say of adapters: their memory, loads and requests. Only a bounded number of adapters
// has samples of its own, however many there are.
void write_adapters(EngineMetrics& page);

// Names and labels that routers, autoscalers and dashboards of other servers read, for all replicas
// together. `model` is the base's id; `now` is in seconds since the epoch.
std::string gateway_metrics(const engine::Stats& stats, std::string_view model, double now);

}  // namespace motley::server
