#pragma once

#include <memory>
#include <span>
#include <vector>

#include "cli/bench/steps/step_cost.h"
#include "lora/apply/batch.h"
#include "lora/pages/pool.h"

namespace motley::cli {

// Random adapters in a pool of the device, each with pages of its own. Their numbers repeat those
// of one adapter for each rank, made once; a scale of its own keeps each apart from the others.
class RandomAdapters {
 public:
  struct Options {
    int count = 0;
    std::vector<int> ranks;  // adapter i has number i modulo these
    bool shared_outer = false;
    DType factors = DType::bf16;
  };

  // Refuses what the device's memory does not hold. Model and device must outlive it.
  static Result<std::unique_ptr<RandomAdapters>> create(const model::Model& model,
                                                        tensor::Device& device,
                                                        const Options& options);

  lora::Pool& pool() { return *pool_; }
  std::span<const lora::Mix> mixes() const { return mixes_; }
  std::span<const AdapterNumbers> numbers() const { return numbers_; }
  // Rounded up as pages hold it.
  int largest_rank() const { return largest_rank_; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  RandomAdapters() = default;

  std::unique_ptr<lora::Pool> pool_;
  std::vector<lora::Mix> mixes_;  // one for each adapter
  std::vector<AdapterNumbers> numbers_;
  int largest_rank_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace motley::cli
