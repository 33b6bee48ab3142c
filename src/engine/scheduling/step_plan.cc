#include "engine/scheduling/step_plan.h"

#include <algorithm>
#include <string_view>

#include "base/cat.h"
#include "base/system/out_of_memory.h"

namespace motley::engine {

StepPlan::StepPlan(const Limits& limits) : limits_(limits) {
  const auto sequences = static_cast<std::size_t>(limits.sequences);
  planned_.reserve(sequences);
  chunks_.reserve(sequences);
  outputs_.reserve(sequences);
  draws_.reserve(2 * sequences);
  forked_samplers_.reserve(sequences);
}

void StepPlan::clear() {
  planned_.clear();
  chunks_.clear();
  outputs_.clear();
  draws_.clear();
  forked_samplers_.clear();
}

void StepPlan::start(std::int64_t free_sequences) {
  clear();
  rows_left_ = limits_.rows;
  free_sequences_ = free_sequences;
}

Result<void> StepPlan::add(RunningSequence& running, std::int64_t count) {
  const Sequence& sequence = running.sequence;
  const Job& job = *sequence.job;
  const auto begin = static_cast<std::size_t>(running.computed);
  const auto rows = static_cast<std::size_t>(count);
  chunks_.push_back({.pages = running.pages.pages(),
                     .length = running.computed,
                     .tokens = std::span(sequence.tokens).subspan(begin, rows),
                     .mix = running.claim.mix()});
  ChunkOutput& output = outputs_.emplace_back();
  if (job.scoring()) add_scores(job.request, begin, rows, output);
  output.asks_routed =
      job.request.routed_experts_from && running.computed + count > sequence.routed_to;
  rows_left_ -= count;
  planned_.push_back({.running = &running, .first_draw = draws_.size()});
  if (count == running.remaining() && job.request.max_tokens > 0) return add_draws(running);
  return {};
}

// Of the tokens that follow these rows, those from the first one on that the request wants.
void StepPlan::add_scores(const Request& request, std::size_t begin, std::size_t rows,
                          ChunkOutput& output) {
  const auto wanted = static_cast<std::size_t>(request.prompt_first);
  const std::size_t first = std::max(begin + 1, wanted);
  const std::size_t end = std::min(begin + 1 + rows, request.tokens.size());
  if (first >= end) return;
  output.scored = std::span(request.tokens).subspan(first, end - first);
  output.first_scored = first - (begin + 1);
  output.top = request.prompt_top;
  const NamedTokens& named = request.prompt_named;
  const auto width = static_cast<std::size_t>(named.width);
  if (width > 0)
    output.named = std::span(named.ids).subspan((first - wanted) * width, (end - first) * width);
}

Result<void> StepPlan::add_draws(RunningSequence& running) {
  Sequence& sequence = running.sequence;
  Planned& planned = planned_.back();
  const Draw draw{.sampler = sequence.sampler.get(),
                  .tokens = sequence.tokens,
                  .prompt_tokens = sequence.job->prompt_tokens()};
  if (sequence.forked) {
    draws_.push_back(draw);
    planned.draws = 1;
    return {};
  }
  planned.first_fork = forked_samplers_.size();
  return within_memory([&] { fork_samplers(sequence, planned, draw); });
}

void StepPlan::fork_samplers(Sequence& sequence, Planned& planned, Draw draw) {
  for (int choice = sequence.choice; choice < sequence.choice + sequence.choices; ++choice) {
    if (sequence.job->closed[static_cast<std::size_t>(choice)]) continue;
    if (planned.draws > 0) {
      if (free_sequences_ == 0) break;
      --free_sequences_;
    }
    forked_samplers_.push_back(sequence.sampler->fork(choice));
    draw.sampler = forked_samplers_.back().get();
    draws_.push_back(draw);
    ++planned.draws;
  }
}

// draws_ does not reallocate any more.
void StepPlan::finish() {
  for (std::size_t i = 0; i < chunks_.size(); ++i) {
    outputs_[i].draws = std::span(draws_).subspan(planned_[i].first_draw, planned_[i].draws);
    chunks_[i].logits = outputs_[i].logits();
    chunks_[i].first_logits = outputs_[i].first_logits();
    const RunningSequence& running = *planned_[i].running;
    // A draw that waits leaves its row to be computed again.
    const bool waits = std::ranges::any_of(
        outputs_[i].draws, [](const Draw& draw) { return draw.sampler->may_wait(); });
    const std::int64_t certain = std::ssize(chunks_[i].tokens) - (waits ? 1 : 0);
    if (running.slot)
      chunks_[i].state = {.slot = running.slot.number(),
                          .anchor = running.anchor,
                          .certain = std::min(certain, planned_[i].saved_rows.value_or(certain))};
  }
}

void StepPlan::unpin() {
  for (runner::Chunk& chunk : chunks_) chunk.mix = {};
}

StepPlan::Part StepPlan::part(std::size_t at) {
  const Planned& planned = planned_[at];
  const bool forks = !planned.running->sequence.forked;
  return {.running = *planned.running,
          .chunk = chunks_[at],
          .output = outputs_[at],
          .forked_samplers =
              std::span(forked_samplers_).subspan(planned.first_fork, forks ? planned.draws : 0),
          .saves_state = planned.saved_rows.has_value()};
}

std::string StepPlan::describe() const {
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

}  // namespace motley::engine
