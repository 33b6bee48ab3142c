#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/thread_pool.h"
#include "engine/executor.h"
#include "engine/prompt_scores.h"
#include "engine/sampler_maker.h"
#include "engine/sampling_batch.h"
#include "engine/sampling_state.h"
#include "runner/runner.h"
#include "tensor/arena.h"
#include "tensor/tensor.h"

namespace motley::engine {

// Steps of a model through its runner, and tokens drawn where its logits are.
class RunnerExecutor final : public Executor {
 public:
  struct Options {
    std::int64_t vocabulary = 0;
    SamplerMaker* samplers = nullptr;
    ThreadPool* pool = nullptr;  // fills masks of grammars; null: the engine's thread
  };

  // What is named here outlives it; page numbers of the runner are given out by nobody else. Takes
  // all memory that it will need.
  static Result<std::unique_ptr<RunnerExecutor>> create(runner::Runner& runner,
                                                        const Options& options);

  Limits limits() const override;
  void prepare(const Request& request, Prepared done) override;
  Result<void> takes(const lora::Mix& mix) const override { return runner_->takes(mix); }
  Result<void> copy_page(std::int32_t from, std::int32_t to) override;
  Result<void> step(std::span<StepChunk> chunks, FunctionRef<void()> meanwhile) override;
  void foresee(const lora::SiteSet& sites) override { runner_->foresee(sites); }
  Result<bool> work_ahead() override { return runner_->capture_ahead(); }
  Result<void> let_go() override;

 private:
  RunnerExecutor(runner::Runner& runner, const Options& options,
                 std::unique_ptr<PromptScores> scores, std::unique_ptr<SamplingBatch> sampling,
                 tensor::Arena scratch);

  Result<void> read(std::span<StepChunk> chunks, const tensor::Tensor& logits,
                    std::span<const runner::LogitRow> rows);
  // Queues the draws of states_, one for each row of logits from the first.
  Result<void> queue_states(const tensor::Tensor& logits, std::size_t first);
  void answer_draws();
  // Captures a step while the GPU computes this one, if that takes long enough to hide it. Whether
  // there was one to be captured.
  Result<bool> capture_meanwhile();

  runner::Runner* runner_;
  Options options_;
  std::unique_ptr<PromptScores> scores_;
  std::unique_ptr<SamplingBatch> sampling_;
  tensor::Arena scratch_;  // of one piece's draws
  SteadyClock clock_;
  Duration last_wait_{};  // for the GPU, once a step of single tokens had been queued
  int missed_steps_ = 0;  // side by side, that had no graph

  // Of the step at hand.
  std::vector<runner::Chunk> chunks_;
  std::vector<Draw*> draws_;            // in the order in which they were queued
  std::vector<SamplingState*> states_;  // of draws that are queued next
};

}  // namespace motley::engine
