// Decides which sequences begin to run.

#include <algorithm>
#include <utility>

#include "base/cat.h"
#include "base/check.h"
#include "base/system/out_of_memory.h"
#include "engine/scheduling/scheduler.h"

namespace motley::engine {
namespace {

MixKey key_of(const WaitingSequence& waiting) {
  const auto parts = waiting.claim->mix().key();
  return {.parts = {parts.begin(), parts.end()}, .salt = waiting.sequence.job->request.cache_salt};
}

}  // namespace

std::string Scheduler::flow_of(const Request& request) {
  std::string flow;
  for (const lora::ScaledAdapter& each : request.adapters) flow += cat(each.name, ",");
  return flow;
}

// A sequence for which memory runs out fails; the others are unchanged.
void Scheduler::admit() {
  const TimePoint now = clock_->now();
  ++admission_;
  // If memory runs out, the next step tries again.
  if (!within_memory([this] { order_waiting(); }).ok()) {
    turns_.clear();
    waiting_changed_ = true;
  }
  if (!within_memory([&] { give_adapters(now); }).ok()) line_.clear();
  bool room = true;
  bool some_began = false;
  for (const Turn& turn : turns_) {
    WaitingSequence& waiting = turn.at->second;
    const Result<bool> now_begins = within_memory([&] { return begins(waiting, room, now); });
    if (!now_begins.ok()) mark(*waiting.sequence.job, now_begins.error());
    if (!now_begins.ok() || !*now_begins) continue;
    const std::shared_ptr<Job> job = waiting.sequence.job;
    Waiting::node_type place = waiting_.extract(turn.at);
    waiting_changed_ = some_began = true;
    const Result<void> begun = within_memory([&] { begin(std::move(place)); });
    if (!begun.ok()) mark(*job, begun.error());
  }
  // Some entries would refer to sequences that have begun.
  if (some_began) turns_.clear();
  fail_marked();
}

Result<bool> Scheduler::begins(WaitingSequence& waiting, bool& room, TimePoint now) {
  const Job& job = *waiting.sequence.job;
  if (job.failure) return false;
  if (!has_adapters(waiting, now)) {
    if (waiting.claim && waiting.claim->error() != nullptr) return *waiting.claim->error();
    if (!waiting.claim && !residency_.can_fit(job.adapters.entries()))
      return Error(ErrorCode::unsupported,
                   "the request's adapters don't fit the adapters' memory at once", "adapters",
                   "use fewer, or give them more (--adapter-memory)");
    return false;
  }
  if (!waiting.claim->resolved()) {
    // Replaced content may need more memory than the content at the request's arrival.
    MOTLEY_TRY_VOID(waiting.claim->resolve(job.request.adapters));
    MOTLEY_TRY_VOID(executor_->takes(waiting.claim->mix()));
  }
  // No sequence begins after one that finds no pages, except those of clients that run fewer.
  room = (room || has_right_of_way(waiting, now)) && find_room(waiting, now);
  // The others' adapters are requested nevertheless, so that they are ready later.
  if (!room && !job.started) waiting.claim->unresolve();
  return room;
}

// In order of the line: claims as far as adapters fit, and closing of others where it is worth it.
void Scheduler::give_adapters(TimePoint now) {
  residency_.stop_making_room();
  for (auto& [order, waiting] : waiting_) {
    if (!waiting.claim) waiting.sequence.job->client->sequences = 0;
  }
  bool one_client = true;
  const Client* first = nullptr;
  for (auto& [order, waiting] : waiting_) {
    if (waiting.claim) continue;
    const auto adapters = waiting.sequence.job->adapters.entries();
    if (adapters.empty()) {
      waiting.claim = residency_.claim(adapters);
      continue;
    }
    if (!waiting.asked) waiting.asked = now;
    ++waiting.sequence.job->client->sequences;
    one_client = one_client && (first == nullptr || first == waiting.sequence.job->client);
    first = waiting.sequence.job->client;
  }
  for (auto& [order, waiting] : waiting_) {
    if (waiting.claim) continue;
    const auto count = static_cast<double>(waiting.sequence.job->client->sequences);
    line_.add(waiting, now, {.priority = one_client, .urgency = 1 / count});
  }
  const std::span<const Want> line = line_.sorted();
  if (line.empty()) return;
  residency_.rank_in_use();
  for (const Want& want : line) {
    want.first->claim = residency_.claim(want.adapters);
    if (!want.first->claim) make_room_for(want);
  }
  line_.clear();
  // Adapters that one sequence has claimed are available to all.
  for (auto& [order, waiting] : waiting_) {
    if (!waiting.claim) waiting.claim = residency_.claim(waiting.sequence.job->adapters.entries());
  }
  if (residency_.making_room()) take_claims_back(now);
}

// Sequences that wait with a claim on a closing adapter would keep it as long as their queue lasts.
// The first of them, as many as a batch holds, keep their claims, so that steps stay full. The
// others wait until it is loaded again.
void Scheduler::take_claims_back(TimePoint now) {
  std::int64_t kept = 0;
  for (const Turn& turn : turns_) {
    WaitingSequence& waiting = turn.at->second;
    if (!waiting.claim || waiting.claim->begun() || !waiting.claim->closing()) continue;
    if (kept++ < limits_.sequences) continue;
    waiting.claim.reset();
    waiting.asked = now;
    waiting.in_line = false;
  }
}

// An adapter closes once sequences that wait for others have waited, all together, for the patience
// times the number of sequences that have begun with it.
void Scheduler::make_room_for(const Want& want) {
  if (!residency_.can_fit(want.adapters)) return;
  if (!want.in_line) {
    const auto price = residency_.price_of_room(want.adapters);
    if (!price || want.waited < *price * options_.adapter_patience) return;
  }
  want.first->in_line = true;
  residency_.make_room(want.adapters);
}

bool Scheduler::has_adapters(WaitingSequence& waiting, TimePoint now) {
  if (!waiting.claim || !waiting.claim->ready()) return false;
  if (waiting.asked) waiting.without_adapters += now - *std::exchange(waiting.asked, {});
  return true;
}

std::int64_t Scheduler::growth_of(const Sequence& sequence) const {
  const Job& job = *sequence.job;
  const std::int64_t most = std::min(longest_, job.prompt_tokens() + job.request.max_tokens);
  return sequence.open() *
         foresight_.growth(pages_.pages_for(sequence.length()), pages_.pages_for(most));
}

Shortage Scheduler::shortage_of(const WaitingSequence& waiting) const {
  KvPages::Match match;
  if (!waiting.sequence.job->scoring())
    match = pages_.match(key_of(waiting), waiting.sequence.tokens);
  std::int64_t growth = growth_of(waiting.sequence);
  for (const auto& running : running_) growth += growth_of(running->sequence);
  return shortage({.pages = pages_.pages_for(waiting.sequence.length()),
                   .found = match.pages,
                   .idle = match.idle},
                  {.available = pages_.available(),
                   .growth = growth,
                   .running = static_cast<std::int64_t>(running_.size()),
                   .max_running = max_running()});
}

std::int64_t Scheduler::max_running() const {
  if (limits_.state_slots == 0) return limits_.sequences;
  return std::min(limits_.sequences, std::ssize(running_) + slots_.free());
}

bool Scheduler::find_room(const WaitingSequence& waiting, TimePoint now) {
  while (!shortage_of(waiting).none()) {
    if (!preempt_for(waiting, now)) return false;
  }
  return true;
}

// Preempts a sequence of the same client with lower priority, else the last one of a client that
// runs more. So a client that fills the batch with long answers blocks others no longer than the
// patience.
bool Scheduler::preempt_for(const WaitingSequence& waiting, TimePoint now) {
  order_running();
  const Job& job = *waiting.sequence.job;
  for (std::size_t i = running_.size(); i-- > 0;) {
    const Job& other = *running_[i]->sequence.job;
    if (other.client != job.client || other.request.priority >= job.request.priority) continue;
    preempt(i);
    return true;
  }
  if (!has_right_of_way(waiting, now)) return false;
  preempt_last();
  return true;
}

void Scheduler::preempt_last() { preempt(running_.size() - 1); }

void Scheduler::preempt(std::size_t at) {
  // So that its slot is free.
  if (running_[at]->loading > 0) note(finish_copies());
  std::unique_ptr<RunningSequence> preempted = std::move(running_[at]);
  running_changed_ = true;
  running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(at));
  ++stats_.preemptions;
  save_state(*preempted);
  wait(std::move(preempted->place),
       {.sequence = std::move(preempted->sequence), .claim = std::move(preempted->claim)});
}

void Scheduler::begin(Waiting::node_type place) {
  const TimePoint now = clock_->now();
  WaitingSequence waiting = std::move(place.mapped());
  place.mapped() = {};
  const std::shared_ptr<Job> job = waiting.sequence.job;
  if (!job->started) {
    job->client->flows.begin(job->tag);
    job->turn = clients_.charge(*job->client, job->cost);
    clients_.begin(job->turn);
  }
  waiting.claim->begin();
  Stats& stats = counts_of(job->request);
  if (waiting.without_adapters > Duration{}) stats.adapter_wait.observe(waiting.without_adapters);
  SequencePages pages(pages_, key_of(waiting));
  const std::vector<std::int32_t>& tokens = waiting.sequence.tokens;
  pages.reserve(static_cast<std::int64_t>(tokens.capacity()));
  StateSlot slot = limits_.state_slots > 0 ? StateSlot(slots_) : StateSlot();
  SequencePages::Adopted adopted;
  std::uint64_t loading = 0;
  if (!job->scoring()) {
    adopted = pages.adopt(tokens);
    stats.prefix_lookup_tokens += tokens.size();
    stats.prefix_hit_tokens += static_cast<std::uint64_t>(adopted.tokens);
    stats.prefix_state_missed_tokens +=
        static_cast<std::uint64_t>(adopted.matched - adopted.tokens);
    if (slot && adopted.tokens > 0) loading = restore_state(adopted, slot);
  }
  const std::int64_t computed = adopted.tokens;
  const auto copy = pages.grow(computed, waiting.sequence.length());
  MOTLEY_CHECK(!copy, "blocks are not written again");
  insert_running(
      std::make_unique<RunningSequence>(RunningSequence{.sequence = std::move(waiting.sequence),
                                                        .claim = *std::move(waiting.claim),
                                                        .pages = std::move(pages),
                                                        .slot = std::move(slot),
                                                        .place = std::move(place),
                                                        .computed = computed,
                                                        .anchor = computed,
                                                        .saved = computed,
                                                        .matched = adopted.matched,
                                                        .loading = loading}));
  if (std::exchange(job->started, true)) return;
  job->cached_tokens = computed;
  job->begun = now;
  stats.queue_time.observe(now - job->accepted);
  const auto prompt = static_cast<std::uint64_t>(job->prompt_tokens());
  stats.begun_tokens += prompt;
  count_traffic(*job, [&](AdapterTraffic& traffic) { traffic.prompt_tokens += prompt; });
  job->sink->take(StartEvent{.prompt_tokens = job->prompt_tokens(), .cached_tokens = computed});
}

void Scheduler::insert_running(std::unique_ptr<RunningSequence> running) {
  running_.push_back(std::move(running));
  running_changed_ = true;
}

}  // namespace motley::engine
