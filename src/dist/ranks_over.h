#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/system/clock.h"
#include "dist/communicator.h"

namespace motley::dist {

// What ranks on GPUs exchange numbers over; `automatic`: PeerRanks if all GPUs address each other's
// memory, else NcclRanks.
enum class RanksOver : std::uint8_t { automatic, peers, nccl };

// --ranks-over: "auto", "peers" or "nccl".
Result<RanksOver> parse_ranks_over(std::string_view text);
std::string_view name(RanksOver over);

struct RanksChoice {
  RanksOver over = RanksOver::automatic;
  std::string reason;
};
// `why_not_peers`: empty if all GPUs address each other's memory.
RanksChoice choose_ranks(RanksOver asked, std::string_view why_not_peers);

struct GpuRanksOptions {
  std::vector<int> gpus;  // of each rank
  RanksOver over = RanksOver::automatic;
  Duration max_wait = std::chrono::seconds(60);
};
struct ChosenRanks {
  std::unique_ptr<RankGroup> group;
  RanksChoice choice;
};
Result<ChosenRanks> create_gpu_ranks(const GpuRanksOptions& options);

}  // namespace motley::dist
