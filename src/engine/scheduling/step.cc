// Lays out a step, runs it, and processes its results.

#include <algorithm>
#include <utility>

#include "base/cat.h"
#include "base/check.h"
#include "base/log.h"
#include "base/system/out_of_memory.h"
#include "engine/scheduling/scheduler.h"
#include "kernels/sampling.h"

namespace motley::engine {
namespace {

constexpr Duration between_overflow_reports = std::chrono::minutes(1);

bool has_overflowed(const ChunkOutput& output) {
  return !output.scores_finite || std::ranges::any_of(output.draws, [](const Draw& draw) {
    return draw.token == kernels::logits_not_finite;
  });
}

// "adapter 'a' (scale 0.5) and adapter 'b'"; empty for the base.
std::string mix_of(const Request& request) {
  std::vector<std::string> each;
  for (const lora::ScaledAdapter& adapter : request.adapters)
    each.push_back(cat("adapter ", quote(adapter.name),
                       adapter.scale == 1 ? "" : cat(" (scale ", adapter.scale, ")")));
  return join(each, " and ");
}

}  // namespace

Result<void> Scheduler::lay_out() {
  order_running();
  planned_.clear();
  chunks_.clear();
  outputs_.clear();
  draws_.clear();
  forked_samplers_.clear();
  rows_left_ = limits_.rows;
  slots_left_ = static_cast<std::size_t>(max_running()) - running_.size();
  MOTLEY_TRY_VOID(lay_out_decodes());
  lay_out_prompts();
  // draws_ does not reallocate any more.
  for (std::size_t i = 0; i < chunks_.size(); ++i) {
    outputs_[i].draws = std::span(draws_).subspan(planned_[i].first_draw, planned_[i].draws);
    chunks_[i].logits = outputs_[i].logits();
    const RunningSequence& running = *planned_[i].running;
    // A draw may have to wait, and its row is computed again then.
    const std::int64_t uncertain = planned_[i].draws > 0 ? 1 : 0;
    if (running.slot)
      chunks_[i].state = {.slot = running.slot.number(),
                          .anchor = running.anchor,
                          .certain = std::ssize(chunks_[i].tokens) - uncertain};
  }
  return {};
}

// A sequence that needs a page when there is none preempts the last in the order, in the end
// itself; so the first one always continues.
Result<void> Scheduler::lay_out_decodes() {
  const std::uint64_t preemptions = stats_.preemptions;
  for (std::size_t i = 0; i < running_.size(); ++i) {
    RunningSequence& running = *running_[i];
    if (running.remaining() != 1 || running.loading > 0) continue;
    if (running.held && !running.sequence.sampler->ready()) continue;
    running.held = false;
    const std::int64_t length = running.sequence.length();
    while (running_.size() > i &&
           running.pages.missing(running.computed, length) > pages_.available())
      preempt_last();
    if (running_.size() <= i) break;
    MOTLEY_TRY_VOID(grow(running));
    if (!running.sequence.job->failure) add_chunk(running, 1);
  }
  foresight_.learn(stats_.preemptions > preemptions);
  return {};
}

// If memory runs out while a page is copied, the sequence has lost its pages.
Result<void> Scheduler::grow(RunningSequence& running) {
  const auto copy = running.pages.grow(running.computed, running.sequence.length());
  if (!copy) return {};
  Result<void> copied;
  const Result<void> kept =
      within_memory([&] { copied = executor_->copy_page(copy->from, copy->to); });
  if (!kept.ok()) mark(*running.sequence.job, kept.error());
  return copied;
}

// If memory runs out in a step, its progress is unknown: all sequences in it are lost.
Result<void> Scheduler::compute(FunctionRef<void()> meanwhile) {
  Result<void> done;
  const auto details = [this] { return describe_step(); };
  const Watchdog::Scope watched(options_.watchdog, Watchdog::Work::step, details);
  const Result<void> kept = within_memory([&] {
    done = executor_->step(chunks_, outputs_, [&] {
      deliver();
      meanwhile();
    });
  });
  // Between steps the chunks pin nothing.
  for (runner::Chunk& chunk : chunks_) chunk.mix = {};
  if (!kept.ok()) {
    for (const Planned& each : planned_) mark(*each.running->sequence.job, kept.error());
  }
  return done;
}

void Scheduler::lay_out_prompts() {
  share_rows();
  for (const auto& running : running_) {
    if (running->remaining() <= 1 || running->loading > 0 || running->sequence.job->failure)
      continue;
    Client& client = *running->sequence.job->client;
    const std::int64_t rows = std::min(rows_wanted(*running), client.rows);
    client.rows -= rows;
    if (rows <= 0) continue;
    add_chunk(*running, rows);
    planned_.back().saves_state = running->computed + rows == next_split(*running);
  }
}

void Scheduler::add_chunk(RunningSequence& running, std::int64_t count) {
  const Sequence& sequence = running.sequence;
  const Job& job = *sequence.job;
  const auto begin = static_cast<std::size_t>(running.computed);
  const auto rows = static_cast<std::size_t>(count);
  chunks_.push_back({.pages = running.pages.pages(),
                     .length = running.computed,
                     .tokens = std::span(sequence.tokens).subspan(begin, rows),
                     .mix = running.claim.mix()});
  ChunkOutput& output = outputs_.emplace_back();
  if (job.scoring()) {
    const std::span<const std::int32_t> following =
        std::span(job.request.tokens).subspan(begin + 1);
    output.scored = following.first(std::min(rows, following.size()));
    output.top = job.request.prompt_top;
  }
  rows_left_ -= count;
  planned_.push_back({.running = &running, .first_draw = draws_.size()});
  if (count == running.remaining() && job.request.max_tokens > 0) add_draws(running);
}

void Scheduler::add_draws(RunningSequence& running) {
  Sequence& sequence = running.sequence;
  Planned& planned = planned_.back();
  Draw draw{.sampler = sequence.sampler.get(),
            .tokens = sequence.tokens,
            .prompt_tokens = sequence.job->prompt_tokens()};
  if (sequence.forked) {
    draws_.push_back(draw);
    planned.draws = 1;
    return;
  }
  planned.first_fork = forked_samplers_.size();
  const Result<void> forked = within_memory([&] {
    for (int choice = sequence.choice; choice < sequence.choice + sequence.choices; ++choice) {
      if (sequence.job->closed[static_cast<std::size_t>(choice)]) continue;
      if (planned.draws > 0) {
        if (slots_left_ == 0) break;
        --slots_left_;
      }
      forked_samplers_.push_back(sequence.sampler->fork(choice));
      draw.sampler = forked_samplers_.back().get();
      draws_.push_back(draw);
      ++planned.draws;
    }
  });
  if (!forked.ok()) mark(*sequence.job, forked.error());
}

// Called on the watchdog's thread during a step: uses only what does not change in a step.
std::string Scheduler::describe_step() const {
  constexpr std::size_t max_named = 8;
  std::vector<std::string_view> adapters;
  for (const Planned& each : planned_) {
    for (const AdapterEntry* const entry : each.running->sequence.job->adapters.entries()) {
      if (adapters.size() < max_named &&
          std::ranges::find(adapters, entry->spec.name) == adapters.end())
        adapters.push_back(entry->spec.name);
    }
  }
  return cat(limits_.rows - rows_left_, " rows of ", planned_.size(),
             " sequences, adapters: ", adapters.empty() ? "none" : join(adapters));
}

void Scheduler::fail_undrawable() {
  for (const auto& running : running_) {
    if (auto why = running->sequence.sampler->failure())
      mark(*running->sequence.job, *std::move(why));
  }
  fail_marked();
}

void Scheduler::settle() {
  for (std::size_t i = 0; i < planned_.size(); ++i) {
    RunningSequence& running = *planned_[i].running;
    if (running.sequence.job->failure) continue;
    const std::size_t rows = chunks_[i].tokens.size();
    const ChunkOutput& output = outputs_[i];
    const bool prompt = running.sequence.generated == 0;
    if (has_overflowed(output)) {
      running.pages.forget_mix();
      fail_overflowed(*running.sequence.job);
      continue;
    }
    // A sequence that draws again computes its last token again, because its logits are gone.
    running.held = std::ranges::any_of(output.draws, &Draw::waits);
    running.computed += static_cast<std::int64_t>(rows) - (running.held ? 1 : 0);
    running.pages.publish(running.sequence.tokens, running.computed);
    settle_state(planned_[i], chunks_[i]);
    if (prompt || rows > 1) counts_of(running.sequence.job->request).prompt_tokens += rows;
    if (!output.scored.empty()) deliver_scores(running, chunks_[i].length, output);
    if (running.remaining() > 0) continue;
    Job& job = *running.sequence.job;
    if (job.request.max_tokens == 0) {
      for (int choice = 0; choice < job.request.choices; ++choice) {
        if (!job.closed[static_cast<std::size_t>(choice)])
          finish_choice(job, choice, FinishReason::length);
      }
      running.done = true;
    } else if (running.sequence.forked) {
      accept(running, output.draws[0]);
    } else {
      const auto samplers =
          std::span(forked_samplers_).subspan(planned_[i].first_fork, planned_[i].draws);
      const Result<void> forked = within_memory([&] { fork(running, output.draws, samplers); });
      if (!forked.ok()) mark(job, forked.error());
    }
  }
  fail_marked();
  for (const auto& running : running_) {
    // The next turn of a conversation begins where this answer ends.
    if (running->done) save_state(*running);
    if (running->done && running->sequence.job->open == 0) forget(*running->sequence.job);
  }
  if (std::erase_if(running_, [](const auto& running) { return running->done; }) > 0)
    running_changed_ = true;
}

std::int64_t Scheduler::rows_wanted(const RunningSequence& running) const {
  const std::int64_t split = next_split(running);
  return split > 0 ? split - running.computed : running.remaining();
}

std::int64_t Scheduler::next_split(const RunningSequence& running) const {
  if (!running.slot || !options_.prefix_cache || limits_.snapshots == 0 ||
      running.sequence.job->scoring())
    return 0;
  // Pages that a request finds and cannot use for want of a state are worth a step if they are
  // many.
  constexpr std::int64_t worth = 16;
  const std::int64_t page = pages_.page_tokens();
  const std::int64_t last =
      running.sequence.job->request.reused_up_to(running.sequence.length(), page);
  const bool lost_much = running.matched - running.saved >= worth * page;
  for (const std::int64_t split : {lost_much ? running.matched : 0, last})
    if (split > running.computed) return split;
  return 0;
}

void Scheduler::settle_state(const Planned& planned, const runner::Chunk& chunk) {
  RunningSequence& running = *planned.running;
  if (!running.slot) return;
  const std::int64_t page = pages_.page_tokens();
  running.anchor = (chunk.length + chunk.state.certain) / page * page;
  const std::int64_t interval = options_.snapshot_interval;
  if (planned.saves_state || (interval > 0 && running.anchor - running.saved >= interval))
    save_state(running);
}

void Scheduler::save_state(RunningSequence& running) {
  if (!running.slot || running.anchor == 0 || running.loading > 0) return;
  running.saved = running.anchor;
  if (const auto place = running.pages.add_snapshot(running.anchor))
    note(executor_->save_state(running.slot.number(), *place));
}

StateSlot Scheduler::copy_of(const StateSlot& slot) {
  if (!slot) return {};
  StateSlot copy(slots_);
  note(executor_->copy_state(slot.number(), copy.number()));
  return copy;
}

void Scheduler::note(Result<void> copied) {
  if (copied_.ok()) copied_ = std::move(copied);
}

std::uint64_t Scheduler::restore_state(const SequencePages::Adopted& adopted, StateSlot& slot) {
  if (adopted.snapshot != SnapshotPlaces::none) {
    note(executor_->restore_state(adopted.snapshot, slot.number()));
    return 0;
  }
  const std::uint64_t copy = copies_begun_ + 1;
  pages_.begin_load(adopted.host_snapshot, copy);
  slot.begin_copy(copy);
  copies_begun_ = copy;
  note(executor_->load_state(adopted.host_snapshot, slot.number()));
  return copy;
}

Result<void> Scheduler::follow_copies() {
  if (limits_.host_snapshots == 0) return {};
  if (copies_ended_ < copies_begun_) {
    MOTLEY_TRY(copies_ended_, executor_->state_copies_ended());
    pages_.end_copies(copies_ended_);
    slots_.end_copies(copies_ended_);
  }
  for (const auto& running : running_) {
    if (running->loading == 0 || running->loading > copies_ended_) continue;
    running->loading = 0;
    // On the device, too: it is likely to be used again.
    save_state(*running);
  }
  while (const auto offload = pages_.begin_offload(copies_begun_ + 1)) {
    ++copies_begun_;
    MOTLEY_TRY_VOID(executor_->offload_state(offload->place, offload->host_place));
  }
  return {};
}

Result<void> Scheduler::finish_copies() {
  MOTLEY_TRY_VOID(executor_->finish_state_copies());
  return follow_copies();
}

Result<Scheduler::Step> Scheduler::wait_for_copies() {
  deliver();
  MOTLEY_TRY_VOID(std::exchange(copied_, {}));
  MOTLEY_TRY_VOID(finish_copies());
  return Step::ran;
}

// A request with adapters fails because of them: the base alone is finite, or requests without
// adapters fail, too.
void Scheduler::fail_overflowed(Job& job) {
  const TimePoint now = clock_->now();
  const std::string mix = mix_of(job.request);
  bool report = false;
  const auto count = [&](std::uint64_t& failures, std::optional<TimePoint>& reported) {
    ++failures;
    if (reported && now - *reported < between_overflow_reports) return;
    reported = now;
    report = true;
  };
  std::uint64_t uncounted = 0;
  const bool internal = job.request.internal;
  if (mix.empty()) count(internal ? uncounted : stats_.non_finite_logits, non_finite_reported_);
  for (AdapterEntry* const entry : job.adapters.entries()) {
    count(internal ? uncounted : entry->non_finite_logits, entry->non_finite_reported);
    residency_.note(*entry);
  }
  if (report)
    log::error("engine.non_finite_logits", {{"adapters", mix},
                                            {"prompt_tokens", job.prompt_tokens()},
                                            {"completion_tokens", job.completion_tokens}});
  mark(job, mix.empty()
                ? Error(ErrorCode::not_finite, "the model's logits are not finite", "",
                        "check its files, or serve it with --compute f32")
                : Error(ErrorCode::not_finite, cat("the logits of ", mix, " are not finite"), "",
                        "the adapter's numbers overflow: use another, or a smaller scale"));
}

void Scheduler::deliver_scores(RunningSequence& running, std::int64_t length,
                               const ChunkOutput& output) {
  Job& job = *running.sequence.job;
  // A prompt that was preempted and computed again has been scored in part.
  const auto known = static_cast<std::size_t>(std::max<std::int64_t>(0, job.scored - (length + 1)));
  if (known >= output.scored.size()) return;
  PromptEvent event{.first = job.scored};
  const auto keep = [](auto& list, auto results) { list.assign(results.begin(), results.end()); };
  const Result<void> kept = within_memory([&] {
    keep(event.logprobs, output.logprobs.subspan(known));
    if (!output.ranks.empty()) keep(event.ranks, output.ranks.subspan(known));
    keep(event.top, output.logprobs_top.subspan(known * static_cast<std::size_t>(output.top)));
  });
  if (!kept.ok()) return mark(job, kept.error());
  job.scored += static_cast<std::int64_t>(event.logprobs.size());
  job.sink->take(std::move(event));
}

// The prompt of several choices is computed: each choice that has a draw becomes a sequence; those
// for which the step had no place wait with the prompt.
void Scheduler::fork(RunningSequence& running, std::span<const Draw> draws,
                     std::span<std::unique_ptr<Sampler>> samplers) {
  Sequence& parent = running.sequence;
  const int end = parent.choice + parent.choices;
  int choice = parent.choice;
  const auto next_open = [&] {
    while (choice < end && parent.job->closed[static_cast<std::size_t>(choice)]) ++choice;
    return choice;
  };
  std::vector<std::unique_ptr<RunningSequence>> siblings;
  const int first = next_open();
  std::unique_ptr<Sampler> first_sampler = std::move(samplers[0]);
  ++choice;
  for (std::size_t i = 1; i < draws.size(); ++i, ++choice) {
    Sequence sibling{.job = parent.job,
                     .choice = next_open(),
                     .tokens = parent.tokens,
                     .sampler = std::move(samplers[i])};
    sibling.tokens.reserve(parent.tokens.capacity());
    siblings.push_back(
        std::make_unique<RunningSequence>(RunningSequence{.sequence = std::move(sibling),
                                                          .claim = running.claim.again(),
                                                          .pages = running.pages.fork(),
                                                          .slot = copy_of(running.slot),
                                                          .place = make_waiting_place(),
                                                          .computed = running.computed,
                                                          .anchor = running.anchor,
                                                          .saved = running.saved,
                                                          .matched = running.matched}));
  }
  if (next_open() < end) {
    Sequence rest{.job = parent.job,
                  .choice = choice,
                  .choices = end - choice,
                  .forked = false,
                  .tokens = parent.tokens,
                  .sampler = std::move(parent.sampler)};
    rest.tokens.reserve(parent.tokens.capacity());
    wait(make_waiting_place(), {.sequence = std::move(rest), .claim = running.claim.again()});
  }
  parent.choice = first;
  parent.choices = 1;
  parent.forked = true;
  parent.sampler = std::move(first_sampler);
  accept(running, draws[0]);
  for (std::size_t i = 0; i < siblings.size(); ++i) {
    accept(*siblings[i], draws[i + 1]);
    insert_running(std::move(siblings[i]));
  }
}

// Before the token is added.
void Scheduler::count_token(Job& job, Sequence& sequence, TimePoint now) {
  const bool first = job.completion_tokens == 0;
  const bool follows = sequence.generated > 0;
  const auto count = [&](auto& counts) {
    ++counts.generated_tokens;
    if (first) counts.time_to_first_token.observe(now - job.accepted);
    if (follows) counts.time_per_token.observe(now - sequence.last_token);
  };
  count(counts_of(job.request));
  count_traffic(job, count);
  if (first) job.first_token = now;
  job.last_token = sequence.last_token = now;
}

void Scheduler::accept(RunningSequence& running, const Draw& draw) {
  Sequence& sequence = running.sequence;
  Job& job = *sequence.job;
  if (draw.token < 0) {
    finish_choice(job, sequence.choice, FinishReason::stop);
    running.done = true;
    return;
  }
  const TimePoint now = clock_->now();
  count_token(job, sequence, now);
  sequence.tokens.push_back(draw.token);
  ++sequence.generated;
  ++job.completion_tokens;
  TokenEvent event{.choice = sequence.choice, .id = draw.token, .logprob = draw.logprob};
  const Result<void> kept =
      within_memory([&] { event.top.assign(draw.top.begin(), draw.top.end()); });
  if (!kept.ok()) mark(job, kept.error());
  outbox_.add(job.sink, std::move(event));
  const bool ends = sequence.generated >= job.request.sampling.min_tokens &&
                    std::ranges::binary_search(job.ends, draw.token);
  if (ends) {
    finish_choice(job, sequence.choice, FinishReason::stop, draw.token);
  } else if (draw.ends) {
    finish_choice(job, sequence.choice, FinishReason::stop);
  } else if (sequence.generated == job.request.max_tokens || sequence.length() >= longest_) {
    finish_choice(job, sequence.choice, FinishReason::length);
  } else {
    return;
  }
  running.done = true;
}

}  // namespace motley::engine
