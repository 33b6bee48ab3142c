#include "engine/scheduling/scheduler.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "base/cat.h"
#include "base/check.h"
#include "base/log.h"
#include "base/system/out_of_memory.h"
#include "runner/state_plan.h"

namespace motley::engine {
Scheduler::Scheduler(Executor* executor, AdapterStore* store, const Clock* clock,
                     const Options& options)
    : executor_(executor),
      clock_(clock),
      options_(options),
      limits_(executor->limits()),
      longest_(longest_sequence(limits_.sequence_tokens, limits_.pages, limits_.page_tokens)),
      pages_(limits_.pages, limits_.page_tokens, options.prefix_cache,
             limits_.state_slots > 0
                 ? std::optional(KvPages::Snapshots{
                       .places = limits_.snapshots,
                       .host_places = limits_.host_snapshots,
                       .copies = limits_.state_slots + runner::max_state_offloads})
                 : std::nullopt),
      slots_(limits_.state_slots),
      residency_(store, {.rank = limits_.adapter_rank, .names = options.max_adapters}),
      // For each: a token, the end of its choice, and the end of its request.
      outbox_(3 * static_cast<std::size_t>(limits_.sequences)) {
  MOTLEY_CHECK(limits_.sequences > 0 && limits_.sequences <= limits_.rows,
               "a step has a row for every sequence");
  MOTLEY_CHECK(limits_.state_slots == 0 || limits_.sequences <= limits_.state_slots,
               "a slot for every sequence, where the model keeps states");
  const auto sequences = static_cast<std::size_t>(limits_.sequences);
  running_.reserve(2 * sequences);
  planned_.reserve(sequences);
  chunks_.reserve(sequences);
  outputs_.reserve(sequences);
  draws_.reserve(2 * sequences);
  forked_samplers_.reserve(sequences);
  prompting_.reserve(sequences);
  stats_.ranks.resize(store->ranks());
  residency_.collect();
}

void Scheduler::submit(Arrival arrival) {
  const std::shared_ptr<EventSink> sink = arrival.sink;
  Stats& counts = counts_of(arrival.request);
  const Result<void> entered = within_memory([&] { return enter(std::move(arrival)); });
  if (entered.ok()) return;
  ++counts.failed;
  tell_failure(*sink, entered.error());
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
  job->cost =
      static_cast<std::uint64_t>(request.tokens.size()) +
      static_cast<std::uint64_t>(request.max_tokens) * static_cast<std::uint64_t>(request.choices);
  job->client = &clients_.of(request.client);
  job->client->weight = request.client_weight;
  FairFlows<AdaptersState>& flows = job->client->flows;
  job->tag = flows.charge(flows.of(flow_of(request)), job->cost);
  job->ends = request.stop_ids;
  if (!request.sampling.ignore_eos)
    job->ends.insert(job->ends.end(), request.end_ids.begin(), request.end_ids.end());
  std::ranges::sort(job->ends);
  job->request = std::move(arrival.request);

  Sequence sequence{.job = job,
                    .choices = job->request.choices,
                    .forked = job->request.choices == 1,
                    .tokens = job->request.tokens,
                    .sampler = std::move(arrival.sampler)};
  // Answers rarely use their full length: the vectors of longer ones grow.
  const std::int64_t expected = std::clamp<std::int64_t>(job->request.max_tokens, 0, 4096);
  sequence.tokens.reserve(
      static_cast<std::size_t>(std::min(longest_, sequence.length() + expected)));
  Waiting::node_type place = make_waiting_place();
  std::size_t ends = static_cast<std::size_t>(job->open) + 1;
  for (const auto& [id, other] : jobs_) ends += static_cast<std::size_t>(other->open) + 1;
  outbox_.provide(ends);
  jobs_.emplace(job->id, job);
  ++counts_of(job->request).requests;
  ++job->client->requests;
  wait(std::move(place), {.sequence = std::move(sequence)});
  return {};
}

void Scheduler::wait(Waiting::node_type place, WaitingSequence waiting) {
  place.key() = waiting.sequence.order();
  place.mapped() = std::move(waiting);
  const bool is_new = waiting_.insert(std::move(place)).inserted;
  MOTLEY_CHECK(is_new, "a sequence waits once");
  waiting_changed_ = true;
}

void Scheduler::cancel(RequestId request, std::optional<int> choice,
                       std::optional<std::int64_t> kept) {
  const auto found = jobs_.find(request);
  if (found == jobs_.end()) return;
  const std::shared_ptr<Job> job = found->second;
  const int first = choice.value_or(0);
  const int last = choice.value_or(job->request.choices - 1);
  if (first < 0 || last >= job->request.choices) return;
  for (int i = first; i <= last; ++i) {
    if (!job->closed[static_cast<std::size_t>(i)]) finish_choice(*job, i, FinishReason::cancelled);
  }
  waiting_changed_ = running_changed_ = true;
  std::erase_if(running_, [&](const auto& each) {
    if (each->sequence.job != job || each->sequence.open() > 0) return false;
    // The next turn of a conversation begins where this answer ends.
    if (!kept || each->anchor <= job->prompt_tokens() + *kept) save_state(*each);
    return true;
  });
  std::erase_if(waiting_, [&](const auto& each) {
    return each.second.sequence.job == job && each.second.sequence.open() == 0;
  });
  if (job->open == 0) forget(*job);
  deliver();
}

void Scheduler::cancel_all() {
  for (auto at = jobs_.begin(); at != jobs_.end();) cancel((at++)->first);
}

void Scheduler::fail_all(const Error& error) {
  for (auto at = jobs_.begin(); at != jobs_.end();) fail((at++)->second, error);
}

void Scheduler::fail(std::shared_ptr<Job> job, const Error& error) {
  if (jobs_.erase(job->id) == 0) return;
  leave(*job);
  waiting_changed_ = running_changed_ = true;
  std::erase_if(running_, [&](const auto& each) { return each->sequence.job == job; });
  std::erase_if(waiting_, [&](const auto& each) { return each.second.sequence.job == job; });
  ++counts_of(job->request).failed;
  count_traffic(*job, [](AdapterTraffic& traffic) { ++traffic.failed; });
  note_adapters(*job);
  deliver();
  tell_failure(*job->sink, error);
}

void Scheduler::mark(Job& job, Error error) {
  if (!job.failure) job.failure = std::move(error);
  marked_ = true;
}

void Scheduler::fail_marked() {
  if (!std::exchange(marked_, false)) return;
  for (auto at = jobs_.begin(); at != jobs_.end();) {
    const std::shared_ptr<Job> job = (at++)->second;
    if (job->failure) fail(job, *job->failure);
  }
}

int Scheduler::open_sequences(const Job& job) const {
  int open = 0;
  for (const auto& each : running_) {
    if (each->sequence.job.get() == &job) open += each->sequence.open();
  }
  for (const auto& [order, each] : waiting_) {
    if (each.sequence.job.get() == &job) open += each.sequence.open();
  }
  return open;
}

void Scheduler::fail_running(const Error& error) {
  for (const auto& each : running_) mark(*each->sequence.job, error);
  for (const auto& [id, job] : jobs_) {
    if (job->open == 0 || job->open != open_sequences(*job)) mark(*job, error);
  }
  line_.clear();
  chunks_.clear();
  fail_marked();
}

void Scheduler::finish_choice(Job& job, int choice, FinishReason reason,
                              std::optional<std::int32_t> stop_token) {
  job.closed[static_cast<std::size_t>(choice)] = true;
  --job.open;
  const auto count = [reason](auto& counts) {
    switch (reason) {
      case FinishReason::stop:
        ++counts.finished_stop;
        break;
      case FinishReason::length:
        ++counts.finished_length;
        break;
      case FinishReason::cancelled:
        ++counts.finished_cancelled;
        break;
    }
  };
  count(counts_of(job.request));
  count_traffic(job, count);
  outbox_.add(job.sink, ChoiceEvent{.choice = choice, .reason = reason, .stop_token = stop_token});
}

void Scheduler::forget(const Job& job) {
  if (jobs_.erase(job.id) == 0) return;
  leave(job);
  count_finished(job);
  note_adapters(job);
  outbox_.add(job.sink, Usage{.prompt_tokens = job.prompt_tokens(),
                              .cached_tokens = job.cached_tokens,
                              .completion_tokens = job.completion_tokens});
}

void Scheduler::count_finished(const Job& job) {
  const TimePoint now = clock_->now();
  Stats& stats = counts_of(job.request);
  stats.request_time.observe(now - job.accepted);
  stats.prompt_lengths.observe(static_cast<double>(job.prompt_tokens()));
  stats.answer_lengths.observe(static_cast<double>(job.completion_tokens));
  if (job.started) stats.running_time.observe(now - job.begun);
  if (job.completion_tokens == 0) return;
  stats.prefill_time.observe(job.first_token - job.begun);
  stats.decode_time.observe(job.last_token - job.first_token);
}

Result<Scheduler::Step> Scheduler::step(FunctionRef<void()> meanwhile) {
  std::optional<Result<Step>> done;
  const Result<void> kept = within_memory([&] { done = try_step(meanwhile); });
  if (kept.ok()) return *std::move(done);
  fail_running(kept.error());
  return Step::idle;
}

Result<Scheduler::Step> Scheduler::try_step(FunctionRef<void()> meanwhile) {
  if (residency_.collect()) {
    adapters_changed_ = true;
    // If this runs out of memory, steps prepare what they need themselves.
    std::ignore = within_memory([this] { executor_->foresee(residency_.sites()); });
  }
  fail_undrawable();
  // What waits may need a slot to which a copy is under way.
  if (running_.empty() && slots_.leaving() > 0) MOTLEY_TRY_VOID(finish_copies());
  MOTLEY_TRY_VOID(follow_copies());
  admit();
  if (running_.empty()) {
    deliver();
    if (!has_run_) return Step::idle;
    const Result<void> rests = executor_->let_go();
    has_run_ = false;
    if (rests.ok()) return Step::idle;
    return rests.error();
  }
  has_run_ = true;
  MOTLEY_TRY_VOID(std::exchange(copied_, {}));
  const TimePoint begin = clock_->now();
  Result<void> done = lay_out();
  const bool holds = std::ranges::any_of(running_, [](const auto& each) { return each->held; });
  const bool loads = std::ranges::any_of(running_, [](const auto& each) { return each->loading; });
  if (done.ok() && chunks_.empty() && loads) return wait_for_copies();
  if (done.ok() && chunks_.empty() && holds) {
    // Every running sequence waits for its sampler.
    deliver();
    return Step::idle;
  }
  if (done.ok()) done = std::exchange(copied_, {});
  if (done.ok() && !chunks_.empty()) done = compute(meanwhile);
  if (!done.ok()) return std::move(done).error();
  settle();
  ++stats_.steps;
  stats_.step_time.observe(clock_->now() - begin);
  validate();
  return Step::ran;
}

void Scheduler::validate() {
  if (!options_.validate && stats_.steps % steps_between_checks != 0) return;
  const Result<void> valid = within_memory([this] { return check(); });
  if (valid.ok() || valid.error().code() == ErrorCode::out_of_memory) return;
  MOTLEY_CHECK(!options_.validate, valid.error().message());
  ++stats_.broken_invariants;
  log::error("engine.broken_invariant", {{"what", valid.error().message()}});
}

void Scheduler::count_by_adapter() {
  residency_.clear_counts();
  for (const auto& each : running_) {
    for (AdapterEntry* const entry : each->sequence.job->adapters.entries())
      residency_.count(*entry, &AdapterEntry::running);
  }
  for (const auto& [order, each] : waiting_) {
    for (AdapterEntry* const entry : each.sequence.job->adapters.entries())
      residency_.count(*entry, &AdapterEntry::waiting);
  }
}

void Scheduler::fill(Stats& stats) const {
  stats = stats_;
  stats.taken = clock_->now();
  stats.waiting = static_cast<std::int64_t>(waiting_.size());
  stats.waiting_for_adapters = std::ranges::count_if(
      waiting_, [](const auto& each) { return !each.second.claim || !each.second.claim->ready(); });
  stats.running = static_cast<std::int64_t>(running_.size());
  stats.page_tokens = pages_.page_tokens();
  stats.kv_pages = pages_.pages();
  stats.kv_pages_used = pages_.used();
  stats.kv_pages_cached = pages_.cached();
  const AdapterStore::Usage usage = residency_.usage();
  stats.adapter_loads = residency_.loads();
  stats.adapter_load_failures = residency_.failures();
  stats.adapter_replacements = residency_.replacements();
  stats.adapter_load_time = residency_.load_time();
  stats.other_adapters = residency_.other_traffic();
  stats.adapter_evictions = usage.evictions;
  stats.adapter_pages = usage.pages;
  stats.adapter_pages_free = usage.free_pages;
  stats.adapter_pages_pinned = usage.pinned_pages;
  stats.adapter_page_bytes = usage.page_bytes;
  stats.adapter_host_bytes = usage.host_bytes;
  stats.adapter_host_limit_bytes = usage.host_limit_bytes;
  for (std::size_t rank = 0; rank < stats.ranks.size(); ++rank)
    stats.ranks[rank] = residency_.store().pages_of(rank);
}

Result<void> Scheduler::check() const {
  const auto broken = [](std::string what) { return Error(ErrorCode::internal, std::move(what)); };
  std::vector<std::int32_t> owners(static_cast<std::size_t>(pages_.pages()), 0);
  std::map<RequestId, int> open;
  std::set<std::int32_t> slots;
  for (const auto& each : running_) {
    const Sequence& sequence = each->sequence;
    const std::string who = cat("request ", sequence.job->id, ", choice ", sequence.choice);
    for (const std::int32_t page : each->pages.pages()) ++owners[static_cast<std::size_t>(page)];
    if (each->computed >= sequence.length()) return broken(cat(who, ": nothing left to compute"));
    if (static_cast<std::int64_t>(each->pages.pages().size()) < pages_.pages_for(each->computed))
      return broken(cat(who, ": fewer pages than computed tokens need"));
    if (static_cast<bool>(each->slot) != (limits_.state_slots > 0))
      return broken(cat(who, ": a slot for its state, or no states"));
    if (each->slot && !slots.insert(each->slot.number()).second)
      return broken(cat(who, ": another sequence has its slot"));
    if (each->slot && (each->anchor % pages_.page_tokens() != 0 || each->anchor > each->computed ||
                       each->computed - each->anchor > pages_.page_tokens()))
      return broken(cat(who, ": a state at ", each->anchor, " of ", each->computed, " tokens"));
    if (each->loading > 0 && (each->loading > copies_begun_ || each->anchor != each->computed))
      return broken(cat(who, ": waits for no copy of its state, or has run without it"));
    if (!each->claim.resolved()) return broken(cat(who, ": runs without its adapters"));
    if (sequence.length() > longest_) return broken(cat(who, ": longer than what can run"));
    open[sequence.job->id] += sequence.open();
  }
  if (std::ssize(slots) + slots_.free() + slots_.leaving() != limits_.state_slots)
    return broken(cat(slots.size(), " slots are taken, ", slots_.leaving(),
                      " wait for copies, and ", slots_.free(), " of ", limits_.state_slots,
                      " are free"));
  if (static_cast<std::int64_t>(running_.size()) > limits_.sequences)
    return broken(cat(running_.size(), " sequences run, and a step has ", limits_.sequences));
  const auto stands_before_pointee = [](const auto& a, const auto& b) {
    return stands_before(*a, *b);
  };
  if (!running_changed_ && !std::ranges::is_sorted(running_, stands_before_pointee))
    return broken("what runs is out of order");
  for (const auto& [order, each] : waiting_) {
    if (order != each.sequence.order()) return broken("what waits is out of order");
    open[each.sequence.job->id] += each.sequence.open();
  }
  for (const auto& [id, job] : jobs_) {
    if (job->open == 0 || job->open != open[id])
      return broken(
          cat("request ", id, " has ", job->open, " open choices, and sequences for ", open[id]));
  }
  if (open.size() != jobs_.size()) return broken("a sequence of a request that has ended");
  MOTLEY_TRY_VOID(residency_.check());
  return pages_.check(owners);
}

}  // namespace motley::engine
