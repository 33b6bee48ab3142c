#include "engine/scheduling/scheduler.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "base/cat.h"
#include "base/check.h"
#include "base/log.h"
#include "base/system/out_of_memory.h"
#include "kernels/recurrence.h"
#include "runner/state_plan.h"

namespace motley::engine {
namespace {

Error broken(std::string what) { return {ErrorCode::internal, std::move(what)}; }

}  // namespace

Scheduler::Scheduler(Executor* executor, AdapterStore* store, const Clock* clock,
                     const Options& options)
    : executor_(executor),
      clock_(clock),
      options_(options),
      limits_(executor->limits()),
      pages_(limits_.pages, limits_.page_tokens, options.prefix_cache,
             limits_.state_slots > 0
                 ? std::optional(KvPages::Snapshots{
                       .places = limits_.snapshots,
                       .host_places = limits_.host_snapshots,
                       .copies = limits_.state_slots + runner::max_state_offloads})
                 : std::nullopt),
      states_(executor, &pages_,
              {.saves_prompts = options.prefix_cache && limits_.snapshots > 0,
               .interval = options.snapshot_interval}),
      residency_(store, {.rank = limits_.adapter_rank, .names = options.max_adapters}),
      waiting_({.adapter_patience = options.adapter_patience, .sequences = limits_.sequences}),
      running_(pages_, {.sequences = limits_.sequences, .longest = longest()}),
      plan_({.rows = limits_.rows, .sequences = limits_.sequences}),
      // For each: experts, a token, the end of its choice, and the end of its request.
      outbox_(4 * static_cast<std::size_t>(limits_.sequences)),
      counts_(&residency_, store->ranks()) {
  MOTLEY_CHECK(limits_.sequences > 0 && limits_.sequences <= limits_.rows,
               "a step has a row for every sequence");
  MOTLEY_CHECK(limits_.state_slots == 0 || limits_.sequences <= limits_.state_slots,
               "a slot for every sequence, where the model keeps states");
  residency_.collect();
}

void Scheduler::submit(Arrival arrival) {
  const std::shared_ptr<EventSink> sink = arrival.sink;
  Stats& counts = counts_.of(arrival.request);
  const RequestId id = arrival.id;
  const bool ends_now = pauses_.of(arrival.request) == PauseMode::abort;
  const Result<void> entered = within_memory([&] { return enter(std::move(arrival)); });
  if (entered.ok() && ends_now) abort(id);
  if (entered.ok()) return;
  ++counts.failed;
  report_failure(*sink, entered.error());
}

// First everything that can fail.
Result<void> Scheduler::enter(Arrival arrival) {
  const Request& request = arrival.request;
  std::vector<AdapterEntry*> adapters;
  for (const lora::ScaledAdapter& each : request.adapters) {
    AdapterEntry* const entry = residency_.find(each.name);
    if (entry == nullptr)
      return Error(ErrorCode::not_found, cat("no adapter ", quote(each.name)), "adapters",
                   "it has been unloaded; name one that is loaded");
    adapters.push_back(entry);
    if (!request.internal) residency_.count_apart(*entry);
  }
  auto job = std::make_shared<Job>();
  job->id = arrival.id;
  job->sink = std::move(arrival.sink);
  job->accepted = arrival.accepted;
  job->adapters = NamedAdapters(std::move(adapters));
  job->open = request.choices;
  job->closed.assign(static_cast<std::size_t>(request.choices), false);
  jobs_.charge(*job, request);
  job->ends = request.choice_ends();
  job->request = std::move(arrival.request);
  job->scored = job->request.prompt_first;

  Sequence sequence{.job = job,
                    .choices = job->request.choices,
                    .forked = job->request.choices == 1,
                    .tokens = job->request.tokens,
                    .routed_to = job->request.routed_experts_from.value_or(0),
                    .sampler = std::move(arrival.sampler)};
  // Answers rarely use their full length: the vectors of longer ones grow.
  const std::int64_t expected = std::clamp<std::int64_t>(job->request.max_tokens, 0, 4096);
  sequence.tokens.reserve(
      static_cast<std::size_t>(std::min(longest(), sequence.length() + expected)));
  WaitingQueue::Place place = make_waiting_place();
  // Of each request the ends of its choices, its last event, and in a step a new version.
  const auto most_events = [](const Job& of) { return static_cast<std::size_t>(of.open) + 2; };
  std::size_t ends = most_events(*job);
  for (const auto& [id, other] : jobs_.all()) ends += most_events(*other);
  outbox_.provide(ends);
  jobs_.add(job);
  ++counts_.of(job->request).requests;
  const bool paused = pauses_.keeps(job->request);
  waiting_.add(std::move(place), {.sequence = std::move(sequence), .paused = paused});
  return {};
}

void Scheduler::cancel(RequestId request, std::optional<int> choice,
                       std::optional<std::int64_t> kept) {
  const std::shared_ptr<Job> job = jobs_.find(request);
  if (job == nullptr) return;
  const int first = choice.value_or(0);
  const int last = choice.value_or(job->request.choices - 1);
  if (first < 0 || last >= job->request.choices) return;
  end_choices(job, first, last, FinishReason::cancelled, kept);
}

void Scheduler::abort(RequestId request) {
  const std::shared_ptr<Job> job = jobs_.find(request);
  if (job == nullptr) return;
  if (!job->scoring()) return end_choices(job, 0, job->request.choices - 1, FinishReason::aborted);
  // An answer has all scores of its prompt, or is an error.
  const Result<void> why = within_memory([]() -> Result<void> {
    return Error(ErrorCode::unavailable, "the request was aborted before its prompt was scored", {},
                 "ask again when the server is not paused");
  });
  fail(job, why.error());
}

void Scheduler::end_choices(const std::shared_ptr<Job>& job, int first, int last,
                            FinishReason reason, std::optional<std::int64_t> kept) {
  for (int i = first; i <= last; ++i) {
    if (!job->closed[static_cast<std::size_t>(i)]) finish_choice(*job, i, reason);
  }
  running_.remove_if([&](RunningSequence& each) {
    if (each.sequence.job != job || each.sequence.open() > 0) return false;
    // The next turn of a conversation begins where this answer ends.
    if (!kept || each.anchor <= job->prompt_tokens() + *kept) states_.save(each);
    return true;
  });
  waiting_.remove_if([&](const WaitingSequence& each) {
    return each.sequence.job == job && each.sequence.open() == 0;
  });
  if (job->open == 0) forget(*job);
  deliver();
}

void Scheduler::cancel_all() {
  jobs_.each([this](const std::shared_ptr<Job>& job) { cancel(job->id); });
}

void Scheduler::fail_all(const Error& error) {
  jobs_.each([&](const std::shared_ptr<Job>& job) { fail(job, error); });
}

void Scheduler::fail(const std::shared_ptr<Job>& job, const Error& error) {
  if (!jobs_.remove(*job)) return;
  running_.remove_if([&](const RunningSequence& each) { return each.sequence.job == job; });
  waiting_.remove_if([&](const WaitingSequence& each) { return each.sequence.job == job; });
  counts_.count_failed(*job);
  deliver();
  report_failure(*job->sink, error);
}

void Scheduler::fail_marked() {
  if (!jobs_.take_marked()) return;
  jobs_.each([this](const std::shared_ptr<Job>& job) {
    if (job->failure) fail(job, *job->failure);
  });
}

int Scheduler::open_sequences(const Job& job) const {
  int open = 0;
  for (const auto& each : running_.all()) {
    if (each->sequence.job.get() == &job) open += each->sequence.open();
  }
  for (const auto& [order, each] : waiting_.all()) {
    if (each.sequence.job.get() == &job) open += each.sequence.open();
  }
  return open;
}

void Scheduler::fail_running(const Error& error) {
  for (const auto& each : running_.all()) jobs_.mark(*each->sequence.job, error);
  for (const auto& [id, job] : jobs_.all()) {
    if (job->open == 0 || job->open != open_sequences(*job)) jobs_.mark(*job, error);
  }
  plan_.clear();
  fail_marked();
}

void Scheduler::finish_choice(Job& job, int choice, FinishReason reason,
                              std::optional<std::int32_t> stop_token) {
  job.closed[static_cast<std::size_t>(choice)] = true;
  --job.open;
  counts_.count_choice(job, reason);
  outbox_.add(job.sink, ChoiceEvent{.choice = choice, .reason = reason, .stop_token = stop_token});
}

void Scheduler::forget(const Job& job) {
  if (!jobs_.remove(job)) return;
  counts_.count_finished(job, clock_->now());
  outbox_.add(job.sink, Usage{.prompt_tokens = job.prompt_tokens(),
                              .cached_tokens = job.cached_tokens,
                              .completion_tokens = job.completion_tokens});
}

Result<Scheduler::Step> Scheduler::step(FunctionRef<void()> meanwhile) {
  std::optional<Result<Step>> done;
  const Result<void> kept = within_memory([&] { done = try_step(meanwhile); });
  if (kept.ok()) return *std::move(done);
  fail_running(kept.error());
  return Step::idle;
}

void Scheduler::validate() {
  if (!options_.validate && counts_.all().steps % steps_between_checks != 0) return;
  const Result<void> valid = within_memory([this] { return check(); });
  if (valid.ok() || valid.error().code() == ErrorCode::out_of_memory) return;
  MOTLEY_CHECK(!options_.validate, valid.error().message());
  ++counts_.all().broken_invariants;
  log::error("engine.broken_invariant", {{"what", valid.error().message()}});
}

void Scheduler::count_by_adapter() {
  residency_.clear_counts();
  for (const auto& each : running_.all()) {
    for (AdapterEntry* const entry : each->sequence.job->adapters.entries())
      residency_.count(*entry, &AdapterEntry::running);
  }
  for (const auto& [order, each] : waiting_.all()) {
    for (AdapterEntry* const entry : each.sequence.job->adapters.entries())
      residency_.count(*entry, &AdapterEntry::waiting);
  }
}

void Scheduler::fill(Stats& stats) const {
  stats = counts_.all();
  stats.taken = clock_->now();
  stats.waiting = static_cast<std::int64_t>(waiting_.size());
  stats.waiting_for_adapters = waiting_.without_adapters();
  stats.running = static_cast<std::int64_t>(running_.size());
  stats.page_tokens = pages_.page_tokens();
  stats.kv_pages = pages_.pages();
  stats.kv_pages_used = pages_.used();
  stats.kv_pages_cached = pages_.cached();
  stats.snapshots = limits_.snapshots;
  stats.snapshots_used = pages_.snapshots();
  stats.host_snapshots = limits_.host_snapshots;
  stats.host_snapshots_used = pages_.host_snapshots();
  const AdapterStore::Usage usage = residency_.usage();
  const Residency::LoadStats& loads = residency_.load_stats();
  stats.adapter_loads = loads.loads;
  stats.adapter_load_failures = loads.failures;
  stats.adapter_replacements = loads.replacements;
  stats.adapter_load_time = loads.time;
  stats.other_adapters = residency_.other_traffic();
  stats.adapter_evictions = usage.evictions;
  stats.adapter_pages = usage.pages;
  stats.adapter_pages_free = usage.free_pages;
  stats.adapter_pages_pinned = usage.pinned_pages;
  stats.adapter_pages_replaced = usage.replaced_pages;
  stats.adapter_page_bytes = usage.page_bytes;
  stats.adapter_host_bytes = usage.host_bytes;
  stats.adapter_host_limit_bytes = usage.host_limit_bytes;
  for (std::size_t rank = 0; rank < stats.ranks.size(); ++rank)
    stats.ranks[rank] = residency_.store().pages_of(rank);
}

Result<void> Scheduler::check() const {
  std::vector<std::int32_t> owners(static_cast<std::size_t>(pages_.pages()), 0);
  std::map<RequestId, int> open;
  for (const auto& each : running_.all()) {
    for (const std::int32_t page : each->pages.pages()) ++owners[static_cast<std::size_t>(page)];
    MOTLEY_TRY_VOID(check_running(*each));
    if (each->paused != pauses_.keeps(each->sequence.job->request))
      return broken(
          cat("request ", each->sequence.job->id, " runs on in a pause, or stands still"));
    open[each->sequence.job->id] += each->sequence.open();
  }
  MOTLEY_TRY_VOID(check_slots());
  if (static_cast<std::int64_t>(running_.size()) > limits_.sequences)
    return broken(cat(running_.size(), " sequences run, and a step has ", limits_.sequences));
  if (running_.is_out_of_order()) return broken("what runs is out of order");
  for (const auto& [order, each] : waiting_.all()) {
    if (order != each.sequence.order()) return broken("what waits is out of order");
    open[each.sequence.job->id] += each.sequence.open();
  }
  for (const auto& [id, job] : jobs_.all()) {
    if (job->open == 0 || job->open != open[id])
      return broken(
          cat("request ", id, " has ", job->open, " open choices, and sequences for ", open[id]));
  }
  if (open.size() != jobs_.size()) return broken("a sequence of a request that has ended");
  MOTLEY_TRY_VOID(residency_.check());
  return pages_.check(owners);
}

Result<void> Scheduler::check_running(const RunningSequence& running) const {
  const Sequence& sequence = running.sequence;
  const std::string who = cat("request ", sequence.job->id, ", choice ", sequence.choice);
  if (running.computed >= sequence.length()) return broken(cat(who, ": nothing left to compute"));
  if (static_cast<std::int64_t>(running.pages.pages().size()) < pages_.pages_for(running.computed))
    return broken(cat(who, ": fewer pages than computed tokens need"));
  if (static_cast<bool>(running.slot) != states_.kept())
    return broken(cat(who, ": a slot for its state, or no states"));
  if (running.slot &&
      (running.anchor % pages_.page_tokens() != 0 || running.anchor > running.computed ||
       running.computed - running.anchor >= pages_.page_tokens() + kernels::max_uncertain_rows))
    return broken(cat(who, ": a state at ", running.anchor, " of ", running.computed, " tokens"));
  if (running.loading > 0 &&
      (running.loading > states_.copies_begun() || running.anchor != running.computed))
    return broken(cat(who, ": waits for no copy of its state, or has run without it"));
  if (!running.claim.resolved()) return broken(cat(who, ": runs without its adapters"));
  if (sequence.length() > longest()) return broken(cat(who, ": longer than what can run"));
  return {};
}

Result<void> Scheduler::check_slots() const {
  std::set<std::int32_t> taken;
  for (const auto& each : running_.all()) {
    if (each->slot && !taken.insert(each->slot.number()).second)
      return broken(cat("two sequences have slot ", each->slot.number()));
  }
  const StateSlots& slots = states_.slots();
  if (std::ssize(taken) + slots.free() + slots.leaving() == limits_.state_slots) return {};
  return broken(cat(taken.size(), " slots are taken, ", slots.leaving(), " wait for copies, and ",
                    slots.free(), " of ", limits_.state_slots, " are free"));
}

}  // namespace motley::engine
