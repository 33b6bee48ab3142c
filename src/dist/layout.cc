#include "dist/layout.h"

#include <algorithm>

#include "base/check.h"

namespace motley::dist {

Range deal(std::int64_t count, int ranks, int rank) {
  MOTLEY_CHECK(count >= 0 && ranks > 0 && rank >= 0 && rank < ranks, "a rank of the group");
  const std::int64_t each = count / ranks;
  const std::int64_t longer = count % ranks;
  const std::int64_t begin = rank * each + std::min<std::int64_t>(rank, longer);
  return {begin, begin + each + (rank < longer ? 1 : 0)};
}

HeadShard deal_heads(std::int64_t heads, std::int64_t kv_heads, int ranks, int rank) {
  MOTLEY_CHECK(kv_heads > 0 && heads % kv_heads == 0, "equally many heads for each KV head");
  const std::int64_t group = heads / kv_heads;
  if (ranks <= kv_heads) {
    const Range own = deal(kv_heads, ranks, rank);
    return {.heads = own.times(group), .kv_heads = own};
  }
  // The ranks of each KV head, then the heads of each rank.
  for (std::int64_t head = 0; head < kv_heads; ++head) {
    const Range holders = deal(ranks, static_cast<int>(kv_heads), static_cast<int>(head));
    if (rank >= holders.end) continue;
    const Range own =
        deal(group, static_cast<int>(holders.size()), static_cast<int>(rank - holders.begin));
    if (own.empty()) return {.heads = {}, .kv_heads = {}, .first_of_kv = false};
    return {.heads = {head * group + own.begin, head * group + own.end},
            .kv_heads = {head, head + 1},
            .first_of_kv = rank == holders.begin};
  }
  MOTLEY_CHECK(false, "every rank holds some KV head");
}

ExpertShard deal_experts(std::int64_t experts, int groups, int ranks, int rank) {
  MOTLEY_CHECK(groups > 0 && ranks % groups == 0, "groups of equally many ranks");
  const int ranks_of_group = ranks / groups;
  return {.experts = deal(experts, groups, rank / ranks_of_group),
          .ranks = ranks_of_group,
          .rank = rank % ranks_of_group};
}

}  // namespace motley::dist
