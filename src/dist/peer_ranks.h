#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/system/clock.h"
#include "dist/communicator.h"
#include "kernels/collectives.h"

namespace motley::dist {

// Ranks that have a GPU each, whose GPUs address each other's memory. Calls are kernels on the
// streams of their ranks: they wait for each other on the GPUs, by flags in memory of the group,
// and no thread waits. A rank reads and writes of another only that memory.
//
// A kernel that waits longer than max_wait ends the group: it leaves a word that status() reads.
class PeerRanks final : public RankGroup {
 public:
  struct Options {
    // Of each rank. In tests ranks may share one; then all of their waiting kernels must have room
    // on it, and its streams must not wait for each other.
    std::vector<int> gpus;
    Duration max_wait = std::chrono::seconds(60);
  };

  static Result<std::unique_ptr<PeerRanks>> create(const Options& options);
  ~PeerRanks() override;

  int ranks() const override { return static_cast<int>(members_.size()); }
  Communicator& rank(int rank) override;

 private:
  class Member;

  PeerRanks(const Options& options, std::unique_ptr<kernels::cuda::PeerMemory> memory);

  Result<void> status();
  void fail(Error error);

  Options options_;
  std::unique_ptr<kernels::cuda::PeerMemory> memory_;
  std::vector<std::unique_ptr<Member>> members_;
  std::atomic<bool> failed_{false};
  std::mutex lock_;
  std::optional<Error> failure_;
};

}  // namespace motley::dist
