// Decides which sequences begin to run.

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/system/out_of_memory.h"
#include "engine/scheduling/scheduler.h"

namespace motley::engine {
namespace {

MixKey key_of(const WaitingSequence& waiting) {
  const auto parts = waiting.claim->mix().key();
  return {.parts = {parts.begin(), parts.end()}, .salt = waiting.sequence.job->request.cache_salt};
}

// Whether its adapters are ready.
bool has_adapters(WaitingSequence& waiting, TimePoint now) {
  if (!waiting.claim || !waiting.claim->ready()) return false;
  if (waiting.asked) waiting.without_adapters += now - *std::exchange(waiting.asked, {});
  return true;
}

}  // namespace

// A sequence for which memory runs out fails; the others are unchanged.
void Scheduler::admit() {
  const TimePoint now = clock_->now();
  running_.start_admission();
  waiting_.order(jobs_.clients());
  waiting_.give_adapters(residency_, now);
  bool room = true;
  bool some_began = false;
  for (const WaitingQueue::QueueEntry& entry : waiting_.in_order()) {
    WaitingSequence& waiting = entry.sequence();
    const Result<bool> now_begins = within_memory([&] { return begins(waiting, room, now); });
    if (!now_begins.ok()) jobs_.mark(*waiting.sequence.job, now_begins.error());
    if (!now_begins.ok() || !*now_begins) continue;
    const std::shared_ptr<Job> job = waiting.sequence.job;
    WaitingQueue::Place place = waiting_.take(entry);
    some_began = true;
    const Result<void> begun = within_memory([&] { begin(std::move(place)); });
    if (!begun.ok()) jobs_.mark(*job, begun.error());
  }
  // Some entries would refer to sequences that have begun.
  if (some_began) waiting_.forget_order();
  fail_marked();
}

Result<bool> Scheduler::begins(WaitingSequence& waiting, bool& room, TimePoint now) {
  const Job& job = *waiting.sequence.job;
  if (job.failure || waiting.paused) return false;
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

Shortage Scheduler::shortage_of(const WaitingSequence& waiting) const {
  const KvPages::Match match = pages_.match(key_of(waiting), waiting.sequence.findable());
  return shortage({.pages = pages_.pages_for(waiting.sequence.length()),
                   .found = match.pages,
                   .idle = match.idle},
                  {.available = pages_.available(),
                   .growth = running_.growth_of(waiting.sequence) + running_.growth(),
                   .running = static_cast<std::int64_t>(running_.size()),
                   .max_running = max_running()});
}

std::int64_t Scheduler::max_running() const {
  if (!states_.kept()) return limits_.sequences;
  return std::min(limits_.sequences,
                  static_cast<std::int64_t>(running_.size()) + states_.slots().free());
}

// Whether the sequence may take places of clients that run more sequences even after it begins, and
// whether those places are enough. The preempted sequences' client still runs as many, and none is
// preempted in vain, so sequences do not alternate.
bool Scheduler::has_right_of_way(const WaitingSequence& waiting, TimePoint now) {
  const Job& job = *waiting.sequence.job;
  if (running_.empty() || now - job.accepted < options_.client_patience) return false;
  running_.order();
  // The rank of one more than what it would run then.
  const std::int64_t after = by_weight(running_.running_of(*job.client) + 1, *job.client);
  if (running_.last().rank < after || running_.denies(*job.client)) return false;
  Room room{.available = pages_.available(),
            .growth = running_.growth_of(waiting.sequence),
            .max_running = max_running()};
  std::vector<std::int32_t> released;
  for (const auto& running : running_.all()) {
    if (running->rank >= after) {
      const auto pages = running->pages.pages();
      released.insert(released.end(), pages.begin(), pages.end());
    } else {
      room.growth += running_.growth_of(running->sequence);
      ++room.running;
    }
  }
  room.available += pages_.freed_by(released);
  const Need need{.pages = pages_.pages_for(waiting.sequence.length())};
  if (shortage(need, room).none()) return true;
  job.client->denied = running_.admission();
  return false;
}

bool Scheduler::find_room(const WaitingSequence& waiting, TimePoint now) {
  while (!shortage_of(waiting).none()) {
    if (!preempt_for(waiting, now)) return false;
  }
  return true;
}

// Preempts a sequence of the same client with lower priority, else the last one of a client that
// runs more; but first a paused one, which would keep its pages for as long as the pause lasts. So
// a client that fills the batch with long answers blocks others no longer than the patience.
bool Scheduler::preempt_for(const WaitingSequence& waiting, TimePoint now) {
  running_.order();
  if (!running_.empty() && running_.last().paused) {
    preempt_last();
    return true;
  }
  const Job& job = *waiting.sequence.job;
  for (std::size_t i = running_.size(); i-- > 0;) {
    const Job& other = *running_[i].sequence.job;
    if (other.client != job.client || other.request.priority >= job.request.priority) continue;
    preempt(i);
    return true;
  }
  if (!has_right_of_way(waiting, now)) return false;
  preempt_last();
  return true;
}

void Scheduler::preempt(std::size_t at) {
  // So that its slot is free.
  if (running_[at].loading > 0) states_.note(states_.finish(running_.all()));
  const std::unique_ptr<RunningSequence> preempted = running_.take(at);
  ++counts_.all().preemptions;
  states_.save(*preempted);
  waiting_.add(std::move(preempted->place), {.sequence = std::move(preempted->sequence),
                                             .claim = std::move(preempted->claim),
                                             .paused = preempted->paused});
}

void Scheduler::begin(WaitingQueue::Place place) {
  const TimePoint now = clock_->now();
  WaitingSequence waiting = std::move(place.mapped());
  place.mapped() = {};
  const std::shared_ptr<Job> job = waiting.sequence.job;
  if (!job->started) jobs_.start(*job);
  waiting.claim->begin();
  if (waiting.without_adapters > Duration{})
    counts_.of(job->request).adapter_wait.observe(waiting.without_adapters);
  std::unique_ptr<RunningSequence> running = make_running(std::move(waiting), std::move(place));
  const std::int64_t computed = running->computed;
  const RunningSequence& begun = *running;
  running_.add(std::move(running));
  if (std::exchange(job->started, true)) return;
  job->cached_tokens = computed;
  job->begun = now;
  counts_.count_begun(*job);
  job->versions = begun.claim.versions();
  job->sink->take(StartEvent{.prompt_tokens = job->prompt_tokens(),
                             .cached_tokens = computed,
                             .adapter_version = job->versions});
}

std::unique_ptr<RunningSequence> Scheduler::make_running(WaitingSequence waiting,
                                                         WaitingQueue::Place place) {
  const Job& job = *waiting.sequence.job;
  const std::vector<std::int32_t>& tokens = waiting.sequence.tokens;
  SequencePages pages(pages_, key_of(waiting));
  pages.reserve(static_cast<std::int64_t>(tokens.capacity()));
  StateSlot slot = states_.take_slot();
  SequencePages::Adopted adopted;
  std::uint64_t loading = 0;
  // Where all tokens are scored, none is looked up.
  if (const std::span<const std::int32_t> findable = waiting.sequence.findable();
      findable.size() > 1) {
    adopted = pages.adopt(findable);
    counts_.count_prefix(job, findable.size(), adopted);
    if (slot && adopted.tokens > 0) loading = states_.restore(adopted, slot);
    if (loading > 0) ++counts_.all().snapshot_loads;
  }
  const std::int64_t computed = adopted.tokens;
  const auto copy = pages.grow(computed, waiting.sequence.length());
  MOTLEY_CHECK(!copy, "blocks are not written again");
  return std::make_unique<RunningSequence>(RunningSequence{.sequence = std::move(waiting.sequence),
                                                           .claim = *std::move(waiting.claim),
                                                           .pages = std::move(pages),
                                                           .slot = std::move(slot),
                                                           .place = std::move(place),
                                                           .computed = computed,
                                                           .anchor = computed,
                                                           .saved = computed,
                                                           .matched = adopted.matched,
                                                           .loading = loading});
}

}  // namespace motley::engine
