#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <string_view>
#include <type_traits>

#include "base/system/clock.h"
#include "dist/communicator.h"
#include "dist/meetings.h"
#include "kernels/collectives.h"

namespace motley::dist {

// What groups of ranks with a GPU each share: threads that launch a call together, and the error
// that ends the group. Calls are kernels on the streams of their ranks, which wait for each other
// on the GPUs.
//
// While a kernel waits, its GPU is not idle. But the first use of a kernel may load it, on all GPUs
// of the process, and that waits until they are idle, with locks that every thread's launches may
// need. So ranks launch a call together: none before all have launched what is ahead of it, none
// goes on before all have launched it. A call that a graph records waits for no one: what is
// launched again is loaded.
//
// A thread that waits longer than max_wait ends the group, and so does a GPU.
class GpuRanks : public RankGroup {
 public:
  int ranks() const final { return ranks_; }

 protected:
  class Member;

  GpuRanks(int ranks, Duration max_wait);

  // The first error ends the group.
  void fail(Error error);
  Result<void> status();
  Error missed(int rank, std::string_view call) const;
  Duration max_wait() const { return max_wait_; }

 private:
  // What a GPU reports, if it has ended a wait. May be called by several threads.
  virtual std::optional<Error> reported() = 0;
  // Ends all waits of GPUs, from now on. Called at each error; must not wait itself.
  virtual void end_waits() = 0;

  // Waits for the threads of the other ranks, which come to the same call.
  Result<void> meet(int rank, std::string_view call);

  int ranks_;
  Duration max_wait_;
  Meetings meetings_;
  std::atomic<bool> failed_{false};
  std::mutex lock_;
  std::optional<Error> failure_;
};

class GpuRanks::Member : public Communicator {
 public:
  Member(GpuRanks& group, int rank) : group_(group), rank_(rank) {}

  int rank() const final { return rank_; }
  int ranks() const final { return group_.ranks(); }
  void fail(const Error& error) final;
  Result<void> status() const final { return group_.status(); }

 protected:
  // launch() queues the call; its result, if it has one, is a Result<void>.
  template <class Launch>
  Result<void> launch_together(StreamHandle stream, std::string_view call, const Launch& launch) {
    MOTLEY_TRY_VOID(status());
    const bool alone = kernels::cuda::is_recorded(stream);
    if (!alone) MOTLEY_TRY_VOID(group_.meet(rank_, call));
    if constexpr (std::is_void_v<std::invoke_result_t<Launch>>) {
      launch();
    } else {
      MOTLEY_TRY_VOID(launch());
    }
    return alone ? Result<void>() : group_.meet(rank_, call);
  }

 private:
  GpuRanks& group_;
  int rank_;
};

}  // namespace motley::dist
