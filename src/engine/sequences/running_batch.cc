#include "engine/sequences/running_batch.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace motley::engine {

RunningBatch::RunningBatch(const KvPages& pages, const Limits& limits)
    : pages_(&pages), longest_(limits.longest) {
  running_.reserve(2 * static_cast<std::size_t>(limits.sequences));
  prompting_.reserve(static_cast<std::size_t>(limits.sequences));
}

void RunningBatch::add(std::unique_ptr<RunningSequence> running) {
  running_.push_back(std::move(running));
  changed_ = true;
}

std::unique_ptr<RunningSequence> RunningBatch::take(std::size_t at) {
  std::unique_ptr<RunningSequence> taken = std::move(running_[at]);
  running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(at));
  changed_ = true;
  return taken;
}

// Paused ones are last, so that the others go on as if these were not there.
bool RunningBatch::stands_before(const RunningSequence& a, const RunningSequence& b) {
  if (a.paused != b.paused) return b.paused;
  if (a.rank != b.rank) return a.rank < b.rank;
  return a.sequence.job->client->number < b.sequence.job->client->number;
}

void RunningBatch::order() {
  if (!std::exchange(changed_, false)) return;
  std::ranges::sort(running_, {}, [](const auto& each) {
    return std::pair(each->paused, each->sequence.order());
  });
  ++ordering_;
  for (const auto& each : running_) {
    Client& client = *each->sequence.job->client;
    if (std::exchange(client.ordering, ordering_) != ordering_) client.running = 0;
    each->rank = by_weight(client.running++, client);
  }
  std::ranges::sort(running_, [](const auto& a, const auto& b) { return stands_before(*a, *b); });
}

bool RunningBatch::is_out_of_order() const {
  return !changed_ && !std::ranges::is_sorted(running_, [](const auto& a, const auto& b) {
    return stands_before(*a, *b);
  });
}

void RunningBatch::share_rows(std::int64_t rows,
                              FunctionRef<std::int64_t(const RunningSequence&)> rows_wanted) {
  prompting_.clear();
  for (const auto& running : running_) {
    if (running->remaining() <= 1 || running->loading > 0 || running->paused) continue;
    Client& client = *running->sequence.job->client;
    if (client.rows_wanted == 0) prompting_.push_back(&client);
    client.rows_wanted += rows_wanted(*running);
  }
  std::ranges::sort(prompting_, [](const Client* a, const Client* b) {
    // Those that want the least for their weight leave the others the most.
    const std::int64_t of_a = by_weight(a->rows_wanted, *a);
    const std::int64_t of_b = by_weight(b->rows_wanted, *b);
    return std::tie(of_a, a->number) < std::tie(of_b, b->number);
  });
  std::int64_t left = rows;
  std::int64_t weights = 0;
  for (const Client* const client : prompting_) weights += client->weight;
  for (Client* const client : prompting_) {
    const std::int64_t share = (left * client->weight + weights - 1) / weights;
    client->rows = std::min(std::exchange(client->rows_wanted, 0), share);
    left -= client->rows;
    weights -= client->weight;
  }
}

std::int64_t RunningBatch::growth_of(const Sequence& sequence) const {
  const Job& job = *sequence.job;
  const std::int64_t most = std::min(longest_, job.prompt_tokens() + job.request.max_tokens);
  return sequence.open() *
         growth_reserve_.growth(pages_->pages_for(sequence.length()), pages_->pages_for(most));
}

std::int64_t RunningBatch::growth() const {
  std::int64_t growth = 0;
  for (const auto& running : running_) growth += growth_of(running->sequence);
  return growth;
}

}  // namespace motley::engine
