#pragma once

#include <string_view>

#include "server/metrics/page.h"

namespace motley::server {

// Names and labels that routers, autoscalers and dashboards of other servers read, for all replicas
// together. `model` is the base's id; `now` is in seconds since the epoch.
void write_gateway(MetricsPage& page, const engine::Stats& stats, std::string_view model,
                   double now);

}  // namespace motley::server
