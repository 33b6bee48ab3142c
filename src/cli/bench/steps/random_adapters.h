#pragma once

#include <memory>
#include <span>
#include <vector>

#include "cli/bench/steps/step_cost.h"
#include "lora/apply/batch.h"
#include "lora/pages/pool.h"
#include "runner/other_ranks.h"

namespace motley::cli {

// Random adapters in a pool on the device, each with its own pages. They repeat the numbers of one
// adapter for each rank; each has a different scale.
class RandomAdapters {
 public:
  struct Options {
    int count = 0;
    std::vector<int> ranks;  // adapter i has rank i modulo their number
    bool shared_outer = false;
    DType factors = DType::bf16;
    runner::OtherRanks* others = nullptr;  // which get their shards; null: there are none
  };

  // Fails if they do not fit in the device's memory. Model and device must outlive it.
  static Result<std::unique_ptr<RandomAdapters>> create(const model::Model& model,
                                                        tensor::Device& device,
                                                        const Options& options);

  lora::Pool& pool() { return *pool_; }
  std::span<const lora::Mix> mixes() const { return mixes_; }
  std::span<const AdapterNumbers> numbers() const { return numbers_; }
  // Rounded up as in adapter memory.
  int largest_rank() const { return largest_rank_; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  RandomAdapters() = default;
  Result<void> add(lora::Handle handle, int number);
  static Result<std::unique_ptr<RandomAdapters>> create_on_ranks(const model::Model& model,
                                                                 tensor::Device& device,
                                                                 const Options& options);

  std::unique_ptr<lora::Pool> pool_;
  std::vector<lora::Mix> mixes_;  // one for each adapter
  std::vector<AdapterNumbers> numbers_;
  int largest_rank_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace motley::cli
