#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "base/system/clock.h"
#include "dist/communicator.h"
#include "dist/meetings.h"
#include "kernels/collectives.h"

namespace motley::dist {

// Ranks that have a GPU each, whose GPUs address each other's memory. Calls are kernels on the
// streams of their ranks: they wait for each other on the GPUs, by flags in memory of the group. A
// rank reads and writes of another only that memory.
//
// While a kernel waits, its GPU is not idle. But the first use of a kernel may load it, on all GPUs
// of the process, and that waits until they are idle, with locks that every thread's launches may
// need. So ranks launch a call together: none before all have launched what is ahead of it, none
// goes on before all have launched it. A call that a graph records waits for no one: what is
// launched again is loaded.
//
// A kernel or a thread that waits longer than max_wait ends the group. A kernel leaves a word that
// status() reads.
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
  Error missed(int rank, std::string_view call) const;
  // Waits for the threads of the other ranks, which come to the same call.
  Result<void> meet(int rank, std::string_view call);

  Options options_;
  std::unique_ptr<kernels::cuda::PeerMemory> memory_;
  std::vector<std::unique_ptr<Member>> members_;
  Meetings meetings_;
  std::atomic<bool> failed_{false};
  std::mutex lock_;
  std::optional<Error> failure_;
};

}  // namespace motley::dist
