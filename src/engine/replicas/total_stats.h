#pragma once

#include <span>
#include <vector>

#include "engine/stats/stats.h"

namespace motley::engine {

// The sums over replicas, which the result holds as well. An adapter is listed once.
Stats total_stats(std::vector<Stats> replicas);

// Each adapter once, with the sums of what replicas count of it, in order of name.
std::vector<AdapterInfo> united_adapters(std::span<const std::vector<AdapterInfo>* const> lists);

}  // namespace motley::engine
