#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "dist/gpu_ranks.h"

namespace motley::dist {

// Ranks that have a GPU each, whose GPUs address each other's memory. They wait for each other by
// flags in memory of the group. A rank reads and writes of another only that memory. A kernel whose
// wait exceeds max_wait leaves a word that status() reads.
class PeerRanks final : public GpuRanks {
 public:
  struct Options {
    // Of each rank. In tests ranks may share one; then all of their waiting kernels must have room
    // on it, and its streams must not wait for each other.
    std::vector<int> gpus;
    Duration max_wait = std::chrono::seconds(60);
  };

  static Result<std::unique_ptr<PeerRanks>> create(const Options& options);
  ~PeerRanks() override;

  Communicator& rank(int rank) override;

 private:
  class Member;

  PeerRanks(const Options& options, std::unique_ptr<kernels::cuda::PeerMemory> memory);

  std::optional<Error> reported() override;
  void end_waits() override;

  std::unique_ptr<kernels::cuda::PeerMemory> memory_;
  std::vector<std::unique_ptr<Member>> members_;
};

}  // namespace motley::dist
