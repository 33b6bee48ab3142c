#include "dist/ranks_over.h"

#include <utility>

#include "base/cat.h"
#include "dist/nccl_ranks.h"
#include "dist/peer_ranks.h"
#include "kernels/staged_ranks.h"

namespace motley::dist {

Result<RanksOver> parse_ranks_over(std::string_view text) {
  for (const RanksOver each : {RanksOver::automatic, RanksOver::peers, RanksOver::nccl})
    if (text == name(each)) return each;
  return Error(ErrorCode::invalid_argument, cat("ranks can't compute over ", quote(text)),
               "--ranks-over", "use auto, peers or nccl");
}

std::string_view name(RanksOver over) {
  switch (over) {
    case RanksOver::automatic:
      return "auto";
    case RanksOver::peers:
      return "peers";
    case RanksOver::nccl:
      return "nccl";
  }
  return "";
}

RanksChoice choose_ranks(RanksOver asked, std::string_view why_not_peers) {
  if (asked != RanksOver::automatic) return {asked, cat("--ranks-over ", name(asked))};
  if (why_not_peers.empty()) return {RanksOver::peers, "all GPUs address each other's memory"};
  return {RanksOver::nccl, std::string(why_not_peers)};
}

Result<ChosenRanks> create_gpu_ranks(const GpuRanksOptions& options) {
  ChosenRanks chosen;
  chosen.choice = choose_ranks(options.over, kernels::cuda::why_not_peers(options.gpus));
  if (chosen.choice.over == RanksOver::peers) {
    MOTLEY_TRY(chosen.group,
               PeerRanks::create({.gpus = options.gpus, .max_wait = options.max_wait}));
    return chosen;
  }
  auto group = NcclRanks::create({.gpus = options.gpus, .max_wait = options.max_wait});
  if (!group.ok()) return std::move(group).error().within(chosen.choice.reason);
  chosen.group = *std::move(group);
  return chosen;
}

}  // namespace motley::dist
