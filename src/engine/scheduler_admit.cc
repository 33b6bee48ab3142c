// Who begins to run.

#include <algorithm>
#include <utility>

#include "base/cat.h"
#include "base/check.h"
#include "engine/scheduler.h"

namespace motley::engine {

std::string Scheduler::flow_of(const Request& request) {
  std::string flow;
  for (const ScaledAdapter& each : request.adapters) flow += cat(each.name, ",");
  return flow;
}

void Scheduler::admit() {
  const TimePoint now = clock_->now();
  give_adapters(now);
  bool room = true;
  std::vector<std::pair<std::shared_ptr<Job>, Error>> failures;
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    WaitingSequence& waiting = at->second;
    if (!has_adapters(waiting, now)) {
      if (waiting.claim && waiting.claim->error() != nullptr)
        failures.emplace_back(waiting.sequence.job, *waiting.claim->error());
      else if (!waiting.claim && !residency_.can_fit(waiting.sequence.job->adapters.entries()))
        failures.emplace_back(waiting.sequence.job,
                              Error(ErrorCode::unsupported,
                                    "the request's adapters don't fit the adapters' memory at once",
                                    "adapters", "use fewer, or give them more (--adapter-memory)"));
      ++at;
      continue;
    }
    if (!waiting.claim->resolved()) {
      // Replaced content may need more room than what was there when the request came.
      auto joins = waiting.claim->resolve(waiting.sequence.job->request.adapters);
      if (joins.ok()) joins = executor_->takes(waiting.claim->mix());
      if (!joins.ok()) {
        failures.emplace_back(waiting.sequence.job, joins.error());
        ++at;
        continue;
      }
    }
    room = room && find_room(waiting);
    if (!room) {
      // Others' adapters are asked for all the same, so that they are there when room is.
      if (!waiting.sequence.job->started) waiting.claim->unresolve();
      ++at;
      continue;
    }
    WaitingSequence chosen = std::move(waiting);
    at = waiting_.erase(at);
    begin(std::move(chosen));
  }
  for (const auto& [job, error] : failures) fail(job, error);
}

// In the order of the line: claims as far as there is room, and room where it is worth while.
void Scheduler::give_adapters(TimePoint now) {
  residency_.stop_making_room();
  for (auto& [order, waiting] : waiting_) {
    if (waiting.claim) continue;
    const auto adapters = waiting.sequence.job->adapters.entries();
    if (adapters.empty()) {
      waiting.claim = residency_.claim(adapters);
      continue;
    }
    if (!waiting.asked) waiting.asked = now;
    line_.add(waiting, now);
  }
  const std::span<const Want> line = line_.sorted();
  if (line.empty()) return;
  residency_.rank_in_use();
  for (const Want& want : line) {
    want.first->claim = residency_.claim(want.adapters);
    if (!want.first->claim) make_room_for(want);
  }
  line_.clear();
  // What one has a claim on, all may have.
  for (auto& [order, waiting] : waiting_) {
    if (!waiting.claim) waiting.claim = residency_.claim(waiting.sequence.job->adapters.entries());
  }
  if (residency_.making_room()) take_claims_back(now);
}

// Who waits for a turn with an adapter that closes would keep it for as long as its queue is: a
// batch full of them, who stand first, do, so that steps stay full. The others wait for when it
// comes again.
void Scheduler::take_claims_back(TimePoint now) {
  std::int64_t kept = 0;
  for (auto& [order, waiting] : waiting_) {
    if (!waiting.claim || waiting.claim->begun() || !waiting.claim->closing()) continue;
    if (kept++ < limits_.sequences) continue;
    waiting.claim.reset();
    waiting.asked = now;
    waiting.in_line = false;
  }
}

// An adapter makes room once those who wait for others have waited, all together, for the patience
// that each sequence that has begun with it has cost them.
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
  const auto key = waiting.claim->mix().key();
  KvPages::Match match;
  if (!waiting.sequence.job->scoring())
    match = pages_.match(MixKey(key.begin(), key.end()), waiting.sequence.tokens);
  std::int64_t growth = growth_of(waiting.sequence);
  for (const auto& running : running_) growth += growth_of(running->sequence);
  return shortage({.pages = pages_.pages_for(waiting.sequence.length()),
                   .found = match.pages,
                   .idle = match.idle},
                  {.available = pages_.available(),
                   .growth = growth,
                   .running = static_cast<std::int64_t>(running_.size()),
                   .most_running = limits_.sequences});
}

bool Scheduler::find_room(const WaitingSequence& waiting) {
  const int priority = waiting.sequence.job->request.priority;
  while (!shortage_of(waiting).none()) {
    if (running_.empty() || running_.back()->sequence.job->request.priority >= priority)
      return false;
    push_back_last();
  }
  return true;
}

void Scheduler::push_back_last() {
  std::unique_ptr<RunningSequence> last = std::move(running_.back());
  running_.pop_back();
  ++stats_.preemptions;
  wait({.sequence = std::move(last->sequence), .claim = std::move(last->claim)});
}

void Scheduler::begin(WaitingSequence waiting) {
  const TimePoint now = clock_->now();
  const std::shared_ptr<Job> job = waiting.sequence.job;
  fair_.begin(job->tag);
  waiting.claim->begin();
  if (waiting.without_adapters > Duration{}) stats_.adapter_wait.observe(waiting.without_adapters);
  const auto key = waiting.claim->mix().key();
  SequencePages pages(pages_, MixKey(key.begin(), key.end()));
  const std::vector<std::int32_t>& tokens = waiting.sequence.tokens;
  std::int64_t computed = 0;
  if (!job->scoring()) {
    computed = pages.adopt(tokens);
    stats_.prefix_lookup_tokens += tokens.size();
    stats_.prefix_hit_tokens += static_cast<std::uint64_t>(computed);
  }
  pages.reserve(static_cast<std::int64_t>(tokens.capacity()));
  const auto copy = pages.grow(computed, waiting.sequence.length());
  MOTLEY_CHECK(!copy, "blocks are not written again");
  insert_running(
      std::make_unique<RunningSequence>(RunningSequence{.sequence = std::move(waiting.sequence),
                                                        .claim = *std::move(waiting.claim),
                                                        .pages = std::move(pages),
                                                        .computed = computed}));
  if (std::exchange(job->started, true)) return;
  job->cached_tokens = computed;
  stats_.queue_time.observe(now - job->accepted);
  job->sink->started({.prompt_tokens = job->prompt_tokens(), .cached_tokens = computed});
}

void Scheduler::insert_running(std::unique_ptr<RunningSequence> running) {
  const auto at = std::ranges::upper_bound(running_, running->sequence.order(), {},
                                           [](const auto& each) { return each->sequence.order(); });
  running_.insert(at, std::move(running));
}

}  // namespace motley::engine
