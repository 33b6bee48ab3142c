#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lora/files/adapter.h"
#include "lora/pages/pool.h"
#include "model/model.h"
#include "runner/runner.h"

// Hundreds of adapters that are live at once: rows of one batch, each with adapters of its own.
namespace motley::score_tests {

// Factors on attention's projections and on every routed expert's, whose rank (1 to 8) and numbers
// follow from `number`.
lora::Adapter numbered_adapter(const lora::BaseView& base, std::uint32_t number);

class ManyAdapters {
 public:
  struct Options {
    std::size_t rows = 512;
    std::size_t adapters_per_row = 1;
    float scale = 1;  // of every adapter
  };

  // Adapter a of row r has the number r * adapters_per_row + a. Model and device must outlive it.
  ManyAdapters(const model::Model& model, tensor::Device& device, const Options& options);

  // Of one row: the log-probabilities of all tokens behind its prompt, then those behind one more
  // token. `width` of each.
  using Answer = std::vector<float>;
  // In the order of `rows`, which run side by side: a step of prompts, then one of single tokens.
  std::vector<Answer> answer(std::span<const std::size_t> rows) { return run(rows, true); }
  Answer alone(std::size_t row) { return answer({&row, 1}).front(); }
  // All rows, each with its adapters.
  std::vector<Answer> all();
  // The row's tokens with the base.
  Answer of_base(std::size_t row) { return run({&row, 1}, false).front(); }

  static std::vector<std::int32_t> tokens_of(std::size_t row, std::int64_t vocabulary);
  lora::Pool& pool() { return *pool_; }
  runner::Runner& runner() { return *runner_; }

 private:
  std::vector<Answer> run(std::span<const std::size_t> rows, bool adapted);
  void step(std::span<const runner::Chunk> chunks, std::vector<Answer>& answers);

  const model::Model* model_;
  std::unique_ptr<lora::Pool> pool_;
  std::unique_ptr<runner::Runner> runner_;
  std::vector<lora::Mix> mixes_;
};

}  // namespace motley::score_tests
