#pragma once

#include <string_view>

#include "engine/stats/stats.h"

namespace motley::server {

// In the states of adapters: an adapter that is nowhere in memory is absent, and loaded on request.
inline std::string_view state_of(const engine::AdapterInfo& adapter) {
  if (adapter.on_device) return "ready";
  return adapter.state == engine::AdapterState::loading ? "loading" : "absent";
}

}  // namespace motley::server
