#pragma once

#include <string>
#include <string_view>

#include "engine/stats/stats.h"

namespace motley::server {

// Names and labels that routers, autoscalers and dashboards of other servers read, for all replicas
// together. `model` is the base's id; `now` is in seconds since the epoch.
std::string gateway_metrics(const engine::Stats& stats, std::string_view model, double now);

}  // namespace motley::server
