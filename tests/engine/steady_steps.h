#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/execution/runner_executor.h"
#include "engine/sampling/sampler_maker.h"
#include "score/golden_model.h"

// Steps of every kind that an executor over a golden model is given: to be run until it is warm,
// and then again under whatever counts what they take.
namespace motley::engine_tests {

class SteadySteps {
 public:
  // Adapters of all cases are loaded.
  explicit SteadySteps(score_tests::GoldenModel& golden);

  // Decodes in every size that is captured by itself, prompts in pieces of many sizes, both at
  // once; each under other mixes of the cases, and every mix in some. Tokens are drawn greedily, by
  // chance, with penalties and with log-probabilities.
  void run();

 private:
  struct Sequence {
    std::vector<std::int32_t> pages;
    std::unique_ptr<engine::Sampler> sampler;
  };

  // A step that begins with a piece of a prompt, none where it has no tokens, and goes on with
  // sequences of single tokens.
  void step(std::int64_t prompt, std::int64_t decodes);
  const lora::Mix& next_mix();

  score_tests::GoldenModel* golden_;
  engine::SamplerMaker samplers_{std::nullopt, 1};
  std::unique_ptr<engine::RunnerExecutor> executor_;
  std::vector<lora::Mix> mixes_;
  std::size_t mix_ = 0;
  std::vector<Sequence> sequences_;
  std::vector<std::int32_t> tokens_;
  std::vector<runner::Chunk> chunks_;
  std::vector<engine::ChunkOutput> outputs_;
  std::vector<engine::Draw> draws_;
};

}  // namespace motley::engine_tests
