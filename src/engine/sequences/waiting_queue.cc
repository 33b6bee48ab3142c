#include "engine/sequences/waiting_queue.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/system/out_of_memory.h"

namespace motley::engine {

std::int64_t WaitingQueue::without_adapters() const {
  return std::ranges::count_if(
      waiting_, [](const auto& each) { return !each.second.claim || !each.second.claim->ready(); });
}

void WaitingQueue::add(Place place, WaitingSequence waiting) {
  place.key() = waiting.sequence.order();
  place.mapped() = std::move(waiting);
  const bool is_new = waiting_.insert(std::move(place)).inserted;
  MOTLEY_CHECK(is_new, "a sequence waits once");
  changed_ = true;
}

WaitingQueue::Place WaitingQueue::take(const QueueEntry& entry) {
  changed_ = true;
  return waiting_.extract(entry.at);
}

void WaitingQueue::order(const Clients& clients) {
  if (!std::exchange(changed_, false)) return;
  if (within_memory([&] { try_order(clients); }).ok()) return;
  in_order_.clear();
  changed_ = true;
}

// The order of start-time fair queueing if all could begin one after the other. A sequence that was
// preempted keeps its earlier turn.
void WaitingQueue::try_order(const Clients& clients) {
  in_order_.clear();
  for (auto& [order, waiting] : waiting_) {
    Client& client = *waiting.sequence.job->client;
    client.turn = 0;
    client.sequences = 0;
  }
  for (auto at = waiting_.begin(); at != waiting_.end(); ++at) {
    const Job& job = *at->second.sequence.job;
    Client& client = *job.client;
    ++client.sequences;
    const std::uint64_t own = job.started ? job.turn : clients.turn_of(client);
    // A client's requests stay in their order.
    const std::uint64_t turn = std::max(client.turn, own);
    if (!job.started) client.turn = Clients::after(client, turn, job.cost);
    in_order_.push_back({.turn = turn,
                         .client = client.number,
                         .place = static_cast<std::uint32_t>(in_order_.size()),
                         .at = at});
  }
  std::ranges::sort(in_order_, [](const QueueEntry& a, const QueueEntry& b) {
    return std::tie(a.turn, a.client, a.place) < std::tie(b.turn, b.client, b.place);
  });
  by_client_.clear();
  for (const auto& [order, waiting] : waiting_) {
    const Job& job = *waiting.sequence.job;
    if (job.client->sequences > 0)
      by_client_[job.request.client] = std::exchange(job.client->sequences, 0);
  }
  ++changes_;
}

void WaitingQueue::give_adapters(Residency& residency, TimePoint now) {
  if (!within_memory([&] { try_give_adapters(residency, now); }).ok()) line_.clear();
}

void WaitingQueue::try_give_adapters(Residency& residency, TimePoint now) {
  residency.stop_making_room();
  form_line(residency, now);
  const std::span<const AdapterDemand> line = line_.sorted();
  if (line.empty()) return;
  residency.rank_in_use();
  for (const AdapterDemand& demand : line) {
    demand.first->claim = residency.claim(demand.adapters);
    if (!demand.first->claim) make_room_for(demand, residency);
  }
  line_.clear();
  // Adapters that one sequence has claimed are available to all.
  for (auto& [order, waiting] : waiting_) {
    if (!waiting.claim && !waiting.paused)
      waiting.claim = residency.claim(waiting.sequence.job->adapters.entries());
  }
  if (residency.making_room()) take_claims_back(now);
}

void WaitingQueue::form_line(Residency& residency, TimePoint now) {
  for (auto& [order, waiting] : waiting_) {
    if (!waiting.claim) waiting.sequence.job->client->sequences = 0;
  }
  bool one_client = true;
  const Client* first = nullptr;
  for (auto& [order, waiting] : waiting_) {
    if (waiting.claim || waiting.paused) continue;
    const auto adapters = waiting.sequence.job->adapters.entries();
    if (adapters.empty()) {
      waiting.claim = residency.claim(adapters);
      continue;
    }
    if (!waiting.asked) waiting.asked = now;
    ++waiting.sequence.job->client->sequences;
    one_client = one_client && (first == nullptr || first == waiting.sequence.job->client);
    first = waiting.sequence.job->client;
  }
  for (auto& [order, waiting] : waiting_) {
    if (waiting.claim || waiting.paused) continue;
    const auto count = static_cast<double>(waiting.sequence.job->client->sequences);
    line_.add(waiting, now, {.priority = one_client, .urgency = 1 / count});
  }
}

// An adapter closes once sequences that wait for others have waited, all together, for the patience
// times the number of sequences that have begun with it.
void WaitingQueue::make_room_for(const AdapterDemand& demand, Residency& residency) {
  if (!residency.can_fit(demand.adapters)) return;
  if (!demand.in_line) {
    const auto price = residency.price_of_room(demand.adapters);
    if (!price || demand.waited < *price * rules_.adapter_patience) return;
  }
  demand.first->in_line = true;
  residency.make_room(demand.adapters);
}

// Sequences that wait with a claim on a closing adapter would keep it as long as their queue lasts.
// The first of them, as many as a batch holds, keep their claims, so that steps stay full. The
// others wait until it is loaded again.
void WaitingQueue::take_claims_back(TimePoint now) {
  std::int64_t kept = 0;
  for (const QueueEntry& entry : in_order_) {
    WaitingSequence& waiting = entry.sequence();
    if (!waiting.claim || waiting.claim->begun() || !waiting.claim->closing()) continue;
    if (kept++ < rules_.sequences) continue;
    waiting.claim.reset();
    waiting.asked = now;
    waiting.in_line = false;
  }
}

}  // namespace motley::engine
