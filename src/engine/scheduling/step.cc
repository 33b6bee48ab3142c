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

bool has_overflowed(const ChunkOutput& output) {
  return !output.scores_finite || std::ranges::any_of(output.draws, [](const Draw& draw) {
    return draw.token == kernels::logits_not_finite;
  });
}

// A draw to which mask and biases leave no token ends its choice.
bool has_no_token_left(const ChunkOutput& output) {
  return std::ranges::any_of(output.draws,
                             [](const Draw& draw) { return !draw.waits && draw.token < 0; });
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

Result<Scheduler::Step> Scheduler::try_step(FunctionRef<void()> meanwhile) {
  if (residency_.collect()) {
    adapters_changed_ = true;
    // If this runs out of memory, steps prepare what they need themselves.
    std::ignore = within_memory([this] { executor_->foresee(residency_.sites()); });
  }
  follow_replacements();
  fail_undrawable();
  // What waits may need a slot to which a copy is under way.
  if (running_.empty() && states_.slots().leaving() > 0)
    MOTLEY_TRY_VOID(states_.finish(running_.all()));
  MOTLEY_TRY_VOID(states_.follow(running_.all()));
  admit();
  if (running_.none_goes_on()) return rest();
  has_run_ = true;
  MOTLEY_TRY_VOID(states_.outcome());
  const TimePoint begin = clock_->now();
  MOTLEY_TRY_VOID(lay_out());
  if (plan_.empty()) {
    const auto is_any = [this](auto RunningSequence::* what) {
      return std::ranges::any_of(running_.all(), [&](const auto& each) { return (*each).*what; });
    };
    if (is_any(&RunningSequence::loading)) return wait_for_copies();
    if (is_any(&RunningSequence::held)) {
      // All that runs waits for its sampler.
      deliver();
      return Step::idle;
    }
  }
  MOTLEY_TRY_VOID(states_.outcome());
  if (!plan_.empty()) MOTLEY_TRY_VOID(compute(meanwhile));
  settle();
  ++counts_.all().steps;
  counts_.all().step_time.observe(clock_->now() - begin);
  validate();
  return Step::ran;
}

Result<Scheduler::Step> Scheduler::rest() {
  deliver();
  if (!has_run_) return Step::idle;
  const Result<void> rests = executor_->release_adapters();
  has_run_ = false;
  MOTLEY_TRY_VOID(rests);
  return Step::idle;
}

Result<Scheduler::Step> Scheduler::wait_for_copies() {
  deliver();
  MOTLEY_TRY_VOID(states_.outcome());
  MOTLEY_TRY_VOID(states_.finish(running_.all()));
  return Step::ran;
}

Result<void> Scheduler::lay_out() {
  running_.order();
  plan_.start(max_running() - static_cast<std::int64_t>(running_.size()));
  MOTLEY_TRY_VOID(lay_out_decodes());
  lay_out_prompts();
  plan_.finish();
  return {};
}

// A sequence that needs a page when there is none preempts the last in the order, in the end
// itself; so the first one always continues.
Result<void> Scheduler::lay_out_decodes() {
  const std::uint64_t preemptions = counts_.all().preemptions;
  for (std::size_t i = 0; i < running_.size(); ++i) {
    RunningSequence& running = running_[i];
    if (running.remaining() != 1 || running.loading > 0 || running.paused) continue;
    if (running.held && !running.sequence.sampler->ready()) continue;
    running.held = false;
    const std::int64_t length = running.sequence.length();
    while (running_.size() > i &&
           running.pages.missing(running.computed, length) > pages_.available())
      preempt_last();
    if (running_.size() <= i) break;
    MOTLEY_TRY_VOID(grow(running));
    if (!running.sequence.job->failure) plan(running, 1);
  }
  running_.learn(counts_.all().preemptions > preemptions);
  return {};
}

// If memory runs out while a page is copied, the sequence has lost its pages.
Result<void> Scheduler::grow(RunningSequence& running) {
  const auto copy = running.pages.grow(running.computed, running.sequence.length());
  if (!copy) return {};
  Result<void> copied;
  const Result<void> kept =
      within_memory([&] { copied = executor_->copy_page(copy->from, copy->to); });
  if (!kept.ok()) jobs_.mark(*running.sequence.job, kept.error());
  return copied;
}

// If memory runs out in a step, its progress is unknown: all sequences in it are lost.
Result<void> Scheduler::compute(FunctionRef<void()> meanwhile) {
  Result<void> done;
  const auto details = [this] { return plan_.describe(); };
  const Watchdog::Scope watched(options_.watchdog, Watchdog::Work::step, details);
  const Result<void> kept = within_memory([&] {
    done = executor_->step(plan_.chunks(), plan_.outputs(), [&] {
      deliver();
      meanwhile();
    });
  });
  plan_.unpin();
  if (!kept.ok()) {
    for (std::size_t i = 0; i < plan_.size(); ++i)
      jobs_.mark(*plan_.part(i).running.sequence.job, kept.error());
  }
  return done;
}

void Scheduler::lay_out_prompts() {
  running_.share_rows(plan_.rows_left(), [this](const RunningSequence& running) {
    return states_.rows_wanted(running);
  });
  for (const auto& running : running_.all()) {
    if (running->remaining() <= 1 || running->loading > 0 || running->paused ||
        running->sequence.job->failure)
      continue;
    Client& client = *running->sequence.job->client;
    const std::int64_t rows = std::min(states_.rows_wanted(*running), client.rows);
    client.rows -= rows;
    if (rows <= 0) continue;
    plan(*running, rows);
    if (const auto certain = states_.rows_to_save(*running, rows)) plan_.save_state(*certain);
  }
}

void Scheduler::plan(RunningSequence& running, std::int64_t count) {
  const Result<void> planned = plan_.add(running, count);
  if (!planned.ok()) jobs_.mark(*running.sequence.job, planned.error());
}

void Scheduler::fail_undrawable() {
  for (const auto& running : running_.all()) {
    if (auto why = running->sequence.sampler->failure())
      jobs_.mark(*running->sequence.job, *std::move(why));
  }
  fail_marked();
}

void Scheduler::settle() {
  for (std::size_t i = 0; i < plan_.size(); ++i) settle(plan_.part(i));
  fail_marked();
  bool some_done = false;
  for (const auto& running : running_.all()) {
    if (!running->done) continue;
    some_done = true;
    // The next turn of a conversation begins where this answer ends.
    states_.save(*running);
    if (running->sequence.job->open == 0) forget(*running->sequence.job);
  }
  if (some_done) running_.remove_if([](const RunningSequence& each) { return each.done; });
}

void Scheduler::settle(const StepPlan::Part& part) {
  RunningSequence& running = part.running;
  Job& job = *running.sequence.job;
  if (job.failure) return;
  const std::size_t rows = part.chunk.tokens.size();
  const ChunkOutput& output = part.output;
  const bool prompt = running.sequence.generated == 0;
  if (has_overflowed(output)) {
    running.pages.forget_mix();
    fail_overflowed(job);
    return;
  }
  // A sequence that draws again computes its last token again, because its logits are gone.
  running.held = std::ranges::any_of(output.draws, &Draw::waits);
  running.computed += static_cast<std::int64_t>(rows) - (running.held ? 1 : 0);
  running.pages.publish(running.sequence.tokens, running.computed);
  states_.settle(running, part.chunk, part.saves_state);
  if (prompt || rows > 1) counts_.of(job.request).prompt_tokens += rows;
  if (!output.scored.empty()) deliver_scores(running, part.chunk.length, output);
  if (output.asks_routed) deliver_routed(running, part.chunk.length, output);
  if (running.remaining() > 0) return;
  if (job.request.max_tokens == 0) {
    for (int choice = 0; choice < job.request.choices; ++choice) {
      if (!job.closed[static_cast<std::size_t>(choice)])
        finish_choice(job, choice, FinishReason::length);
    }
    running.done = true;
  } else if (running.sequence.forked) {
    accept(running, output.draws[0]);
  } else {
    const Result<void> forked =
        within_memory([&] { fork(running, output.draws, part.forked_samplers); });
    if (!forked.ok()) jobs_.mark(job, forked.error());
  }
}

// A request with adapters fails because of them: the base alone is finite, or requests without
// adapters fail, too.
void Scheduler::fail_overflowed(Job& job) {
  const std::string mix = mix_of(job.request);
  const bool report = counts_.count_overflow(job, clock_->now());
  if (report)
    log::error("engine.non_finite_logits", {{"adapters", mix},
                                            {"prompt_tokens", job.prompt_tokens()},
                                            {"completion_tokens", job.completion_tokens}});
  jobs_.mark(job,
             mix.empty()
                 ? Error(ErrorCode::not_finite, "the model's logits are not finite", "",
                         "check its files, or serve it with --compute f32")
                 : Error(ErrorCode::not_finite, cat("the logits of ", mix, " are not finite"), "",
                         "the adapter's numbers overflow: use another, or a smaller scale"));
}

void Scheduler::deliver_scores(RunningSequence& running, std::int64_t length,
                               const ChunkOutput& output) {
  Job& job = *running.sequence.job;
  // A prompt that was preempted and computed again has been scored in part.
  const std::int64_t first = length + 1 + static_cast<std::int64_t>(output.first_scored);
  const auto known = static_cast<std::size_t>(std::max<std::int64_t>(0, job.scored - first));
  if (known >= output.scored.size()) return;
  PromptEvent event{.first = job.scored};
  const auto keep = [](auto& list, auto results) { list.assign(results.begin(), results.end()); };
  const Result<void> kept = within_memory([&] {
    keep(event.logprobs, output.logprobs.subspan(known));
    if (!output.ranks.empty()) keep(event.ranks, output.ranks.subspan(known));
    keep(event.top, output.logprobs_top.subspan(known * static_cast<std::size_t>(output.top)));
    keep(event.named, output.logprobs_named.subspan(known * output.named_width()));
  });
  if (!kept.ok()) return jobs_.mark(job, kept.error());
  job.scored += static_cast<std::int64_t>(event.logprobs.size());
  job.sink->take(std::move(event));
}

// A sequence begins at most where it was delivered up to, so each chunk continues that; one that
// was preempted computes some tokens again. All choices share the prompt's.
void Scheduler::deliver_routed(RunningSequence& running, std::int64_t length,
                               const ChunkOutput& output) {
  Sequence& sequence = running.sequence;
  Job& job = *sequence.job;
  const std::int64_t first = sequence.routed_to;
  std::int64_t end = running.computed;
  // Where nothing follows, the answer's last token was read; elsewhere it never is.
  if (job.request.max_tokens == 0 || has_no_token_left(output))
    end = std::min(end, sequence.length() - 1);
  if (first >= end) return;
  RoutedExpertsEvent event{.first = first};
  if (first >= job.prompt_tokens()) event.choice = sequence.choice;
  const Result<void> kept =
      within_memory([&] { output.routed.append_to(event.ids, first - length, end - length); });
  if (!kept.ok()) return jobs_.mark(job, kept.error());
  sequence.routed_to = end;
  outbox_.add(job.sink, std::move(event));
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
                     .routed_to = parent.routed_to,
                     .sampler = std::move(samplers[i])};
    sibling.tokens.reserve(parent.tokens.capacity());
    siblings.push_back(
        std::make_unique<RunningSequence>(RunningSequence{.sequence = std::move(sibling),
                                                          .claim = running.claim.again(),
                                                          .pages = running.pages.fork(),
                                                          .slot = states_.copy_of(running.slot),
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
                  .routed_to = parent.routed_to,
                  .sampler = std::move(parent.sampler)};
    rest.tokens.reserve(parent.tokens.capacity());
    waiting_.add(make_waiting_place(),
                 {.sequence = std::move(rest), .claim = running.claim.again()});
  }
  parent.choice = first;
  parent.choices = 1;
  parent.forked = true;
  parent.sampler = std::move(first_sampler);
  accept(running, draws[0]);
  for (std::size_t i = 0; i < siblings.size(); ++i) {
    accept(*siblings[i], draws[i + 1]);
    running_.add(std::move(siblings[i]));
  }
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
  counts_.count_token(job, sequence, now);
  if (job.completion_tokens == 0) job.first_token = now;
  job.last_token = sequence.last_token = now;
  sequence.tokens.push_back(draw.token);
  ++sequence.generated;
  ++job.completion_tokens;
  TokenEvent event{
      .choice = sequence.choice, .id = draw.token, .logprob = draw.logprob, .rank = draw.rank};
  const Result<void> kept = within_memory([&] {
    event.top.assign(draw.top.begin(), draw.top.end());
    event.top_ranks.assign(draw.top_ranks.begin(), draw.top_ranks.end());
  });
  if (!kept.ok()) jobs_.mark(job, kept.error());
  outbox_.add(job.sink, std::move(event));
  const bool ends = sequence.generated >= job.request.sampling.min_tokens &&
                    std::ranges::binary_search(job.ends, draw.token);
  if (ends) {
    finish_choice(job, sequence.choice, FinishReason::stop, draw.token);
  } else if (draw.ends) {
    finish_choice(job, sequence.choice, FinishReason::stop);
  } else if (sequence.generated == job.request.max_tokens || sequence.length() >= longest()) {
    finish_choice(job, sequence.choice, FinishReason::length);
  } else {
    return;
  }
  running.done = true;
}

}  // namespace motley::engine
