#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "dist/call_watch.h"
#include "dist/gpu_ranks.h"
#include "dist/nccl_library.h"
#include "kernels/staged_ranks.h"

namespace motley::dist {

// Ranks that have a GPU each, between which NCCL moves bytes, over whatever connects them. Nothing
// is added by NCCL: parts are, by kernels, in order of ranks, with the roundings and so the bits of
// PeerRanks.
//
// NCCL's kernels wait without a bound. So kernels at both ends of a call tell the host that it has
// begun and ended, and a thread of the group ends a wait that exceeds max_wait, as it does when a
// rank fails: it aborts NCCL, whose kernels then leave.
//
// Graphs that have recorded calls must be gone before the group, also where it has failed: until
// then NCCL keeps what they use.
class NcclRanks final : public GpuRanks {
 public:
  struct Options {
    std::vector<int> gpus;  // of each rank, a different one
    Duration max_wait = std::chrono::seconds(60);
  };

  // A program calls set_nccl_environment() first.
  static Result<std::unique_ptr<NcclRanks>> create(const Options& options);
  ~NcclRanks() override;

  Communicator& rank(int rank) override;

 private:
  class Member;

  NcclRanks(const Options& options, const NcclLibrary& nccl,
            std::unique_ptr<kernels::cuda::StagingMemory> memory);

  Result<void> connect(const std::vector<int>& gpus);
  std::optional<Error> reported() override { return std::nullopt; }  // the watch reports it
  void end_waits() override;

  // The thread's.
  void watch();
  void look();
  void abort();

  const NcclLibrary nccl_;
  std::unique_ptr<kernels::cuda::StagingMemory> memory_;
  std::vector<NcclComm*> comms_;  // of each rank; empty once they are aborted
  std::vector<std::unique_ptr<Member>> members_;
  CallWatch calls_;
  std::vector<CallWatch::Progress> progress_;

  std::mutex watch_lock_;
  std::condition_variable changed_;
  bool ending_ = false;    // waits
  bool stopping_ = false;  // the watch
  std::thread watch_thread_;
};

}  // namespace motley::dist
