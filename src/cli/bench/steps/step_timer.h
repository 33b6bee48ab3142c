#pragma once

#include <memory>
#include <vector>

#include "cli/bench/steps/random_adapters.h"
#include "cli/bench/steps/step_cost.h"
#include "runner/other_ranks.h"
#include "runner/runner.h"

namespace motley::cli {

// Times steps of a model, which may be random: sequences of equal length, random tokens, and random
// keys and values before them.
class StepTimer {
 public:
  struct Options {
    std::int64_t max_sequences = 1;
    std::int64_t max_tokens = 1;  // of a sequence in a step
    std::int64_t max_rows = 1;
    std::int64_t length = 0;  // at most, before a step
    bool graphs = true;
    runner::OtherRanks* others = nullptr;
  };
  // Fails if it does not fit in the device's memory. Null adapters: none. All must outlive it.
  static Result<std::unique_ptr<StepTimer>> create(const model::Model& model,
                                                   tensor::Device& device, RandomAdapters* adapters,
                                                   const Options& options);

  static constexpr int counted_steps = 4;

  struct Timed {
    double seconds = 0;  // of a step: the median of the rounds
    Touched touched;     // the mean over counted_steps steps
    bool by_graph = false;
  };
  // A round is this many steps, launched one after the other.
  Result<Timed> run(const StepShape& shape, int rounds, int steps_a_round);
  // Seconds that the sums over ranks of a step of so many rows take by themselves, one after the
  // other. For several ranks.
  Result<double> time_sums(std::int64_t rows);

 private:
  StepTimer(const model::Model& model, RandomAdapters* adapters,
            std::unique_ptr<runner::Runner> runner)
      : model_(&model), adapters_(adapters), runner_(std::move(runner)) {}

  Result<void> fill_pages();
  Result<void> fill_pages_of(runner::Runner& runner);
  Result<void> step(const StepShape& shape, std::span<const std::vector<std::int32_t>> pages);
  // Adds what the last step's rows read.
  Result<void> count_touched(const StepShape& shape, Touched& touched);

  const model::Model* model_;
  RandomAdapters* adapters_;
  std::unique_ptr<runner::Runner> runner_;
  std::vector<std::int32_t> tokens_;
  std::vector<runner::Chunk> chunks_;
  std::uint64_t random_ = 88172645463325252U;
};

}  // namespace motley::cli
