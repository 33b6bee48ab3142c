// What a step computes, and what comes of it.

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/scheduler.h"

namespace motley::engine {

Result<void> Scheduler::lay_out() {
  planned_.clear();
  chunks_.clear();
  draws_.clear();
  newborn_.clear();
  rows_left_ = limits_.rows;
  slots_left_ = static_cast<std::size_t>(limits_.sequences) - running_.size();
  MOTLEY_TRY_VOID(lay_out_decodes());
  lay_out_prompts();
  // draws_ moves no more.
  for (std::size_t i = 0; i < chunks_.size(); ++i)
    chunks_[i].draws = std::span(draws_).subspan(planned_[i].first_draw, planned_[i].draws);
  return {};
}

// Whoever needs a page pushes back the last in order while there is none, in the end itself; so the
// first always goes on.
Result<void> Scheduler::lay_out_decodes() {
  const std::uint64_t preemptions = stats_.preemptions;
  for (std::size_t i = 0; i < running_.size(); ++i) {
    RunningSequence& running = *running_[i];
    if (running.remaining() != 1) continue;
    const std::int64_t length = running.sequence.length();
    while (running_.size() > i &&
           running.pages.missing(running.computed, length) > pages_.available())
      push_back_last();
    if (running_.size() <= i) break;
    if (const auto copy = running.pages.grow(running.computed, length))
      MOTLEY_TRY_VOID(executor_->copy_page(copy->from, copy->to));
    add_chunk(running, 1);
  }
  foresight_.learn(stats_.preemptions > preemptions);
  return {};
}

void Scheduler::lay_out_prompts() {
  for (const auto& running : running_) {
    if (rows_left_ == 0) return;
    if (running->remaining() > 1) add_chunk(*running, std::min(running->remaining(), rows_left_));
  }
}

void Scheduler::add_chunk(RunningSequence& running, std::int64_t count) {
  const Sequence& sequence = running.sequence;
  const Job& job = *sequence.job;
  const auto begin = static_cast<std::size_t>(running.computed);
  const auto rows = static_cast<std::size_t>(count);
  StepChunk chunk{.pages = running.pages.pages(),
                  .length = running.computed,
                  .tokens = std::span(sequence.tokens).subspan(begin, rows),
                  .mix = &running.claim.mix()};
  if (job.scoring()) {
    const std::span<const std::int32_t> following =
        std::span(job.request.tokens).subspan(begin + 1);
    chunk.scored = following.first(std::min(rows, following.size()));
    chunk.top = job.request.sampling.top_logprobs;
  }
  rows_left_ -= count;
  chunks_.push_back(chunk);
  planned_.push_back({.running = &running, .first_draw = draws_.size()});
  if (count == running.remaining() && job.request.max_tokens > 0) add_draws(running);
}

void Scheduler::add_draws(RunningSequence& running) {
  Sequence& sequence = running.sequence;
  Planned& planned = planned_.back();
  Draw draw{.sampler = sequence.sampler.get(),
            .tokens = sequence.tokens,
            .prompt_tokens = sequence.job->prompt_tokens()};
  if (sequence.born) {
    draws_.push_back(draw);
    planned.draws = 1;
    return;
  }
  for (int choice = sequence.choice; choice < sequence.choice + sequence.choices; ++choice) {
    if (sequence.job->closed[static_cast<std::size_t>(choice)]) continue;
    if (planned.draws > 0) {
      if (slots_left_ == 0) break;
      --slots_left_;
    }
    newborn_.push_back(sequence.sampler->fork(choice));
    draw.sampler = newborn_.back().get();
    draws_.push_back(draw);
    ++planned.draws;
  }
}

void Scheduler::settle() {
  newborn_cursor_ = 0;
  for (std::size_t i = 0; i < planned_.size(); ++i) {
    RunningSequence& running = *planned_[i].running;
    const StepChunk& chunk = chunks_[i];
    const bool prompt = running.sequence.generated == 0;
    running.computed += static_cast<std::int64_t>(chunk.tokens.size());
    running.pages.publish(running.sequence.tokens, running.computed);
    if (prompt || chunk.tokens.size() > 1) stats_.prompt_tokens += chunk.tokens.size();
    if (!chunk.scored.empty()) deliver_scores(running, chunk);
    if (running.remaining() > 0) continue;
    Job& job = *running.sequence.job;
    if (job.request.max_tokens == 0) {
      for (int choice = 0; choice < job.request.choices; ++choice) {
        if (!job.closed[static_cast<std::size_t>(choice)])
          finish_choice(job, choice, FinishReason::length);
      }
      running.done = true;
    } else if (running.sequence.born) {
      accept(running, chunk.draws[0]);
    } else {
      bear(running, chunk.draws);
    }
  }
  for (const auto& running : running_) {
    if (running->done && running->sequence.job->open == 0) forget(*running->sequence.job);
  }
  std::erase_if(running_, [](const auto& running) { return running->done; });
}

void Scheduler::deliver_scores(RunningSequence& running, const StepChunk& chunk) {
  Job& job = *running.sequence.job;
  // Pushed back and computed again, a prompt has been scored in part.
  const auto known =
      static_cast<std::size_t>(std::max<std::int64_t>(0, job.scored - (chunk.length + 1)));
  if (known >= chunk.scored.size()) return;
  const PromptEvent event{
      .first = job.scored,
      .logprobs = chunk.logprobs.subspan(known),
      .top = chunk.logprobs_top.subspan(known * static_cast<std::size_t>(chunk.top))};
  job.scored += static_cast<std::int64_t>(event.logprobs.size());
  job.sink->prompt_scored(event);
}

// The prompt of several choices is there: each that has a draw becomes a sequence, and those for
// whom the step had no place wait with the prompt.
void Scheduler::bear(RunningSequence& running, std::span<const Draw> draws) {
  Sequence& parent = running.sequence;
  const int end = parent.choice + parent.choices;
  int choice = parent.choice;
  const auto next_open = [&] {
    while (choice < end && parent.job->closed[static_cast<std::size_t>(choice)]) ++choice;
    return choice;
  };
  std::vector<std::unique_ptr<RunningSequence>> born;
  const int first = next_open();
  std::unique_ptr<Sampler> first_sampler = std::move(newborn_[newborn_cursor_++]);
  ++choice;
  for (std::size_t i = 1; i < draws.size(); ++i, ++choice) {
    Sequence sibling{.job = parent.job,
                     .choice = next_open(),
                     .tokens = parent.tokens,
                     .sampler = std::move(newborn_[newborn_cursor_++])};
    sibling.tokens.reserve(parent.tokens.capacity());
    born.push_back(
        std::make_unique<RunningSequence>(RunningSequence{.sequence = std::move(sibling),
                                                          .claim = running.claim.again(),
                                                          .pages = running.pages.fork(),
                                                          .computed = running.computed}));
  }
  if (next_open() < end) {
    Sequence rest{.job = parent.job,
                  .choice = choice,
                  .choices = end - choice,
                  .born = false,
                  .tokens = parent.tokens,
                  .sampler = std::move(parent.sampler)};
    rest.tokens.reserve(parent.tokens.capacity());
    wait({.sequence = std::move(rest), .claim = running.claim.again()});
  }
  parent.choice = first;
  parent.choices = 1;
  parent.born = true;
  parent.sampler = std::move(first_sampler);
  accept(running, draws[0]);
  for (std::size_t i = 0; i < born.size(); ++i) {
    accept(*born[i], draws[i + 1]);
    insert_running(std::move(born[i]));
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
  if (job.completion_tokens == 0) stats_.time_to_first_token.observe(now - job.accepted);
  if (sequence.generated > 0) stats_.time_per_token.observe(now - sequence.last_token);
  sequence.last_token = now;
  sequence.tokens.push_back(draw.token);
  ++sequence.generated;
  ++job.completion_tokens;
  ++stats_.generated_tokens;
  outbox_.add(job.sink, TokenEvent{.choice = sequence.choice,
                                   .token = draw.token,
                                   .logprob = draw.logprob,
                                   .top = draw.top});
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
