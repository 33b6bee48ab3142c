// What groups of GPUs ask of the runtime when they are made.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <cuda_runtime_api.h>

#include "base/function_ref.h"
#include "base/result.h"
#include "kernels/collectives.h"

namespace motley::kernels::cuda {

// "the GPU failed to <action>", of that GPU.
Result<void> done(cudaError_t status, std::string_view action, int gpu);

// Refuses more ranks than groups take, and GPUs that are not there.
Result<void> find_gpus(const std::vector<int>& gpus);

// What a group has: memory of each rank's GPU, and words of the host's memory that all GPUs
// address. Filled with zeros. Nothing may be queued that uses it when it ends.
class MemoryOfRanks {
 public:
  // For GPUs that find_gpus() has found.
  explicit MemoryOfRanks(const std::vector<int>& gpus) : gpus_(gpus) {}
  MemoryOfRanks(const MemoryOfRanks&) = delete;
  MemoryOfRanks& operator=(const MemoryOfRanks&) = delete;
  ~MemoryOfRanks();

  struct Sizes {
    std::size_t bytes = 0;  // of each rank
    std::size_t words = 0;
  };
  // Calls prepare() with each GPU current.
  Result<void> take(const Sizes& sizes, FunctionRef<Result<void>()> prepare);

  int ranks() const { return static_cast<int>(gpus_.size()); }
  int gpu(int rank) const { return gpus_[static_cast<std::size_t>(rank)]; }
  const std::vector<int>& gpus() const { return gpus_; }
  const std::array<std::byte*, max_peers>& of_ranks() const { return of_ranks_; }
  std::uint32_t* words() const { return words_; }

 private:
  std::vector<int> gpus_;
  std::array<std::byte*, max_peers> of_ranks_{};
  std::uint32_t* words_ = nullptr;
};

}  // namespace motley::kernels::cuda
