#include "dist/call_watch.h"

namespace motley::dist {
namespace {

// How many calls `word` is behind `other`; numbers wrap around.
std::int32_t calls_behind(std::uint32_t word, std::uint32_t other) {
  const auto number = [](std::uint32_t of) { return of - of % kernels::rank_calls; };
  return static_cast<std::int32_t>(number(other) - number(word));
}

}  // namespace

std::optional<CallWatch::Overdue> CallWatch::look(std::span<const Progress> ranks, TimePoint now) {
  std::optional<int> overdue;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto [begun, ended] = ranks[rank];
    Wait& wait = waits_[rank];
    const bool goes_on = begun != ended && wait.seen && wait.begun == begun;
    if (!goes_on) wait = {.seen = begun != ended, .begun = begun, .since = now};
    if (goes_on && now - wait.since > max_wait_ && !overdue) overdue = static_cast<int>(rank);
  }
  if (!overdue) return std::nullopt;
  const std::uint32_t begun = ranks[static_cast<std::size_t>(*overdue)].begun;
  std::optional<int> last;
  std::int32_t most = 0;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const std::int32_t behind = calls_behind(ranks[rank].begun, begun);
    if (behind <= most) continue;
    most = behind;
    last = static_cast<int>(rank);
  }
  return Overdue{.rank = *overdue,
                 .missing = last,
                 .call = static_cast<kernels::RankCall>(begun % kernels::rank_calls)};
}

}  // namespace motley::dist
