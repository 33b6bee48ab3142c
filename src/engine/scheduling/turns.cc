// Turns of clients: in the queue, in the batch, and for the rows of a step.

#include <algorithm>
#include <tuple>

#include "base/check.h"
#include "engine/scheduling/scheduler.h"

namespace motley::engine {

// The order of start-time fair queueing if all could begin one after the other. A sequence that was
// preempted keeps its earlier turn.
void Scheduler::order_waiting() {
  if (!std::exchange(waiting_changed_, false)) return;
  turns_.clear();
  for (auto& [order, waiting] : waiting_) {
    Client& client = *waiting.sequence.job->client;
    client.turn = 0;
    client.sequences = 0;
  }
  for (auto at = waiting_.begin(); at != waiting_.end(); ++at) {
    const Job& job = *at->second.sequence.job;
    Client& client = *job.client;
    ++client.sequences;
    const std::uint64_t own = job.started ? job.turn : clients_.turn_of(client);
    // A client's requests stay in their order.
    const std::uint64_t turn = std::max(client.turn, own);
    if (!job.started) client.turn = Clients::after(client, turn, job.cost);
    turns_.push_back({.turn = turn,
                      .client = client.number,
                      .place = static_cast<std::uint32_t>(turns_.size()),
                      .at = at});
  }
  std::ranges::sort(turns_, [](const Turn& a, const Turn& b) {
    return std::tie(a.turn, a.client, a.place) < std::tie(b.turn, b.client, b.place);
  });
  waiting_by_client_.clear();
  for (const auto& [order, waiting] : waiting_) {
    const Job& job = *waiting.sequence.job;
    if (job.client->sequences > 0)
      waiting_by_client_[job.request.client] = std::exchange(job.client->sequences, 0);
  }
  ++waiting_changes_;
}

bool Scheduler::stands_before(const RunningSequence& a, const RunningSequence& b) {
  if (a.rank != b.rank) return a.rank < b.rank;
  return a.sequence.job->client->number < b.sequence.job->client->number;
}

// So a sequence preempted for lack of pages is the last one of a client that runs many, and the
// first of all always continues.
void Scheduler::order_running() {
  if (!std::exchange(running_changed_, false)) return;
  std::ranges::sort(running_, {}, [](const auto& each) { return each->sequence.order(); });
  ++ordering_;
  for (const auto& each : running_) {
    Client& client = *each->sequence.job->client;
    if (std::exchange(client.ordering, ordering_) != ordering_) client.running = 0;
    each->rank = by_weight(client.running++, client);
  }
  std::ranges::sort(running_, [](const auto& a, const auto& b) { return stands_before(*a, *b); });
}

std::int64_t Scheduler::running_of(const Client& client) const {
  return client.ordering == ordering_ ? client.running : 0;
}

// Whether the sequence may take places of clients that run more sequences even after it begins, and
// whether those places are enough. The preempted sequences' client still runs as many, and none is
// preempted in vain, so sequences do not alternate.
bool Scheduler::has_right_of_way(const WaitingSequence& waiting, TimePoint now) {
  const Job& job = *waiting.sequence.job;
  if (running_.empty() || now - job.accepted < options_.client_patience) return false;
  order_running();
  // The rank of one more than what it would run then.
  const std::int64_t after = by_weight(running_of(*job.client) + 1, *job.client);
  if (running_.back()->rank < after || job.client->denied == admission_) return false;
  Room room{.available = pages_.available(),
            .growth = growth_of(waiting.sequence),
            .max_running = max_running()};
  std::vector<std::int32_t> let_go;
  for (const auto& running : running_) {
    if (running->rank >= after) {
      const auto pages = running->pages.pages();
      let_go.insert(let_go.end(), pages.begin(), pages.end());
    } else {
      room.growth += growth_of(running->sequence);
      ++room.running;
    }
  }
  room.available += pages_.freed_by(let_go);
  const Need need{.pages = pages_.pages_for(waiting.sequence.length())};
  if (shortage(need, room).none()) return true;
  job.client->denied = admission_;
  return false;
}

// Clients with prompts in the step get rows by their weights; those that one does not need go to
// the others.
void Scheduler::share_rows() {
  prompting_.clear();
  for (const auto& running : running_) {
    if (running->remaining() <= 1 || running->loading > 0) continue;
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
  std::int64_t left = rows_left_;
  std::int64_t weights = 0;
  for (const Client* const client : prompting_) weights += client->weight;
  for (Client* const client : prompting_) {
    const std::int64_t share = (left * client->weight + weights - 1) / weights;
    client->rows = std::min(std::exchange(client->rows_wanted, 0), share);
    left -= client->rows;
    weights -= client->weight;
  }
}

void Scheduler::leave(const Job& job) {
  const auto used = static_cast<std::uint64_t>(job.prompt_tokens() + job.completion_tokens);
  if (job.started) clients_.refund(*job.client, job.cost - std::min(job.cost, used));
  --job.client->requests;
}

}  // namespace motley::engine
