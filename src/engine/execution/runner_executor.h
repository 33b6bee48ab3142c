#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/system/clock.h"
#include "engine/execution/executor.h"
#include "engine/execution/prompt_scores.h"
#include "engine/sampling/sampling_batch.h"
#include "engine/sampling/sampling_state.h"
#include "runner/runner.h"
#include "tensor/arena.h"
#include "tensor/tensor.h"

namespace motley::engine {

// Runs steps of a model through its runner, and draws tokens on the device. Its samplers are
// SamplingStates.
class RunnerExecutor final : public Executor {
 public:
  // The runner must outlive it, and must not give pages to other callers. Allocates all memory that
  // it will need.
  static Result<std::unique_ptr<RunnerExecutor>> create(runner::Runner& runner,
                                                        std::int64_t vocabulary,
                                                        int prompt_top = max_top_logprobs);

  Limits limits() const override;
  Result<void> takes(const lora::Mix& mix) const override { return runner_->takes(mix); }
  Result<void> copy_page(std::int32_t from, std::int32_t to) override {
    return runner_->copy_page(from, to);
  }
  Result<void> copy_state(std::int32_t from, std::int32_t to) override {
    return runner_->copy_state(from, to);
  }
  Result<void> save_state(std::int32_t slot, std::int32_t place) override {
    return runner_->save_state(slot, place);
  }
  Result<void> restore_state(std::int32_t place, std::int32_t slot) override {
    return runner_->restore_state(place, slot);
  }
  Result<void> offload_state(std::int32_t place, std::int32_t host_place) override {
    return runner_->offload_state(place, host_place);
  }
  Result<void> load_state(std::int32_t host_place, std::int32_t slot) override {
    return runner_->load_state(host_place, slot);
  }
  Result<std::uint64_t> state_copies_ended() override { return runner_->state_copies_ended(); }
  Result<void> finish_state_copies() override { return runner_->finish_state_copies(); }
  Result<void> step(std::span<const runner::Chunk> chunks, std::span<ChunkOutput> outputs,
                    FunctionRef<void()> meanwhile) override;
  void foresee(const lora::SiteSet& sites) override { runner_->foresee(sites); }
  Result<bool> work_ahead() override { return runner_->capture_ahead(); }
  Result<void> release_adapters() override { return runner_->release_adapters(); }

 private:
  RunnerExecutor(runner::Runner& runner, std::int64_t vocabulary,
                 std::unique_ptr<PromptScores> scores, std::unique_ptr<RoutedRowsReader> routed,
                 std::unique_ptr<SamplingBatch> sampling, tensor::Arena scratch);

  // Reads prompts' scores from the logits of these rows, and launches their draws.
  Result<void> read(const tensor::Tensor& logits, std::span<const runner::LogitRow> rows);
  // Launches the draws of states_, one for each row of logits from `first` on.
  Result<void> launch_sampling(const tensor::Tensor& logits, std::size_t first);
  // Queues the copy of the experts that the step's rows chose, if some are requested.
  Result<void> launch_routed();
  void answer_routed();
  void answer_draws();
  // Captures a step while the GPU computes this one, if that takes long enough to hide it. Whether
  // there was a step to capture.
  Result<bool> capture_meanwhile();

  runner::Runner* runner_;
  std::int64_t vocabulary_;
  std::unique_ptr<PromptScores> scores_;
  std::unique_ptr<RoutedRowsReader> routed_;  // null: choices are not kept
  std::unique_ptr<SamplingBatch> sampling_;
  tensor::Arena scratch_;  // for the draws of one piece
  SteadyClock clock_;
  Duration last_wait_{};  // for the GPU, after launching a step of single tokens
  int missed_steps_ = 0;  // consecutive ones without a graph

  // Of the current step.
  std::span<const runner::Chunk> chunks_;
  std::span<ChunkOutput> outputs_;
  std::vector<Draw*> draws_;            // in the order in which they were launched
  std::vector<SamplingState*> states_;  // of the draws that are launched next
};

}  // namespace motley::engine
