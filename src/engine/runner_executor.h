#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/system/clock.h"
#include "engine/executor.h"
#include "engine/sampling/prompt_scores.h"
#include "engine/sampling/sampling_batch.h"
#include "engine/sampling/sampling_state.h"
#include "runner/runner.h"
#include "tensor/arena.h"
#include "tensor/tensor.h"

namespace motley::engine {

// Steps of a model through its runner, and tokens drawn where its logits are. Its samplers are
// SamplingStates.
class RunnerExecutor final : public Executor {
 public:
  // The runner outlives it, and gives its pages to no other caller. Takes all memory that it will
  // need.
  static Result<std::unique_ptr<RunnerExecutor>> create(runner::Runner& runner,
                                                        std::int64_t vocabulary);

  Limits limits() const override;
  Result<void> takes(const lora::Mix& mix) const override { return runner_->takes(mix); }
  Result<void> copy_page(std::int32_t from, std::int32_t to) override {
    return runner_->copy_page(from, to);
  }
  Result<void> step(std::span<const runner::Chunk> chunks, std::span<ChunkOutput> outputs,
                    FunctionRef<void()> meanwhile) override;
  void foresee(const lora::SiteSet& sites) override { runner_->foresee(sites); }
  Result<bool> work_ahead() override { return runner_->capture_ahead(); }
  Result<void> let_go() override { return runner_->let_go(); }

 private:
  RunnerExecutor(runner::Runner& runner, std::int64_t vocabulary,
                 std::unique_ptr<PromptScores> scores, std::unique_ptr<SamplingBatch> sampling,
                 tensor::Arena scratch);

  // Reads prompts' scores from the logits of these rows, and queues their draws.
  Result<void> read(const tensor::Tensor& logits, std::span<const runner::LogitRow> rows);
  // Queues the draws of states_, one for each row of logits from the first.
  Result<void> launch_sampling(const tensor::Tensor& logits, std::size_t first);
  void answer_draws();
  // Captures a step while the GPU computes this one, if that takes long enough to hide it. Whether
  // there was one to be captured.
  Result<bool> capture_meanwhile();

  runner::Runner* runner_;
  std::int64_t vocabulary_;
  std::unique_ptr<PromptScores> scores_;
  std::unique_ptr<SamplingBatch> sampling_;
  tensor::Arena scratch_;  // of one piece's draws
  SteadyClock clock_;
  Duration last_wait_{};  // for the GPU, once a step of single tokens had been queued
  int missed_steps_ = 0;  // side by side, that had no graph

  // Of the step at hand.
  std::span<const runner::Chunk> chunks_;
  std::span<ChunkOutput> outputs_;
  std::vector<Draw*> draws_;            // in the order in which they were queued
  std::vector<SamplingState*> states_;  // of draws that are queued next
};

}  // namespace motley::engine
