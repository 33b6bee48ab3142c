#pragma once

#include <algorithm>
#include <cstdint>

namespace motley::runner {

// Copies of snapshots to the host's memory that are under way at once. Of copies from there each
// slot has one at most.
inline constexpr std::int64_t max_state_offloads = 4;

// How memory for states is shared out: half of it for slots, but no more than a step has sequences,
// and the rest for snapshots. One slot at least.
struct StatePlan {
  std::int64_t slots = 0;
  std::int64_t snapshots = 0;
};
constexpr StatePlan plan_states(std::uint64_t bytes, std::int64_t slot_bytes,
                                std::int64_t snapshot_bytes, std::int64_t sequences) {
  if (slot_bytes == 0) return {};
  const auto all = static_cast<std::int64_t>(bytes);
  const std::int64_t slots = std::clamp<std::int64_t>(all / 2 / slot_bytes, 1, sequences);
  const std::int64_t left = std::max<std::int64_t>(all - slots * slot_bytes, 0);
  return {.slots = slots, .snapshots = snapshot_bytes == 0 ? 0 : left / snapshot_bytes};
}

}  // namespace motley::runner
