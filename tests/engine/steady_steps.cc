#include "engine/steady_steps.h"

#include <utility>

#include "kernels/recurrence.h"

namespace motley::engine_tests {
namespace {

constexpr std::int64_t max_decodes = 63;  // beside a prompt's piece, in a step of 64 sequences
constexpr std::int64_t longest = 100;     // tokens of a sequence, before a step and in it
constexpr std::int64_t max_draws = 1000;  // of a sampler, in all runs

engine::Request request_of(std::int64_t index) {
  engine::Request request{.tokens = {1, 2, 3}, .max_tokens = max_draws};
  engine::SamplingParams& sampling = request.sampling;
  sampling.temperature = index % 2 == 0 ? 0 : 0.8F;
  if (index % 3 == 0) sampling.top_p = 0.9F;
  if (index % 4 == 1) sampling.frequency_penalty = 0.5F;
  if (index % 5 == 0) sampling.logit_bias = {{.token = 7, .bias = 1}};
  sampling.logprobs = index % 7 == 0;
  sampling.top_logprobs = sampling.logprobs ? 3 : 0;
  return request;
}

}  // namespace

SteadySteps::SteadySteps(score_tests::GoldenModel& golden) : golden_(&golden) {
  executor_ =
      engine::RunnerExecutor::create(golden.runner(), golden.model().config().vocabulary).value();
  mixes_.emplace_back();
  for (const json::Value& each : score_tests::cases_of(golden.golden()))
    mixes_.push_back(golden.mix_of(each));
  runner::ConsecutivePages pages(golden.runner().kv());
  for (std::int64_t i = 0; i <= max_decodes; ++i) {
    Sequence& sequence = sequences_.emplace_back(Sequence{.pages = pages.take(longest)});
    samplers_.prepare(request_of(i), [&](Result<std::unique_ptr<engine::Sampler>> made) {
      sequence.sampler = *std::move(made);
    });
  }
  for (std::int32_t i = 0; i < longest; ++i) tokens_.push_back(i % 50);
  chunks_.reserve(sequences_.size());
  outputs_.reserve(sequences_.size());
  draws_.resize(sequences_.size());
}

const lora::Mix& SteadySteps::next_mix() { return mixes_[mix_++ % mixes_.size()]; }

void SteadySteps::step(std::int64_t prompt, std::int64_t decodes) {
  chunks_.clear();
  outputs_.clear();
  std::size_t index = 0;
  const auto add = [&](std::int64_t length, std::int64_t count) {
    Sequence& sequence = sequences_[index];
    draws_[index] = {.sampler = sequence.sampler.get()};
    chunks_.push_back({.pages = sequence.pages,
                       .length = length,
                       .tokens = std::span(tokens_).first(static_cast<std::size_t>(count)),
                       .mix = next_mix()});
    // The last row's draw may have to wait.
    if (golden_->model().keeps_states())
      chunks_.back().state = {.slot = static_cast<std::int32_t>(index),
                              .anchor = length / kernels::state_page * kernels::state_page,
                              .certain = count - 1};
    outputs_.push_back({.draws = std::span(draws_).subspan(index, 1)});
    ++index;
  };
  if (prompt > 0) {
    add(0, prompt);
    if (prompt % 2 == 0) {
      outputs_[0].scored = chunks_[0].tokens.subspan(1);
      outputs_[0].top = 2;
    }
  }
  for (std::int64_t i = 0; i < decodes; ++i) add(i % (longest - 1), 1);
  for (std::size_t i = 0; i < chunks_.size(); ++i) chunks_[i].logits = outputs_[i].logits();
  executor_->step(chunks_, outputs_, [] {}).value();
}

void SteadySteps::run() {
  mix_ = 0;
  const std::int64_t max_rows = golden_->runner().options().max_rows;
  for (std::int64_t decodes = 1; decodes <= max_decodes; decodes += decodes < 8 ? 1 : 5)
    step(0, decodes);
  for (std::int64_t prompt = 2; prompt <= max_rows; prompt += prompt < 20 ? 1 : 11) step(prompt, 0);
  for (std::int64_t prompt = 2; prompt < 30; prompt += 9) step(prompt, 20);
  // Every mix by itself, in a step of either kind.
  for (mix_ = 0; mix_ < mixes_.size();) {
    step(0, 1);
    --mix_;
    step(17, 0);
  }
  executor_->release_adapters().value();
}

}  // namespace motley::engine_tests
