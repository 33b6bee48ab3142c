#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/system/clock.h"
#include "dist/communicator.h"

namespace motley::dist {

// Ranks that are threads of this process, over host memory.
//
// A rank copies its part into a staging buffer of the group, and ranks read each other's parts only
// there: a rank that gives up may free its own memory while others still read. There are two
// buffers for each rank, used in turn: a buffer is written again only after a later call has shown
// that all ranks have read it.
class ThreadRanks final : public RankGroup {
 public:
  struct Options {
    int ranks = 1;
    // A rank that has not arrived this long after another began to wait for it is lost.
    Duration max_wait = std::chrono::seconds(60);
    const Clock* clock = nullptr;  // of that wait; null: the steady clock
  };

  explicit ThreadRanks(const Options& options);
  ~ThreadRanks() override;

  int ranks() const override { return options_.ranks; }
  Communicator& rank(int rank) override;

 private:
  class Member;
  // What a rank does, for checking that all do the same and for messages.
  struct Call {
    std::string_view name;
    std::int64_t numbers = 0;

    friend bool operator==(const Call&, const Call&) = default;
  };

  // Waits until all ranks have arrived.
  Result<void> meet(int rank, const Call& call);
  // Everything below requires the lock.
  Error fail_locked(Error error);
  std::string missing_locked() const;
  std::optional<Error> mismatch_locked() const;

  Options options_;
  const Clock& clock_;
  std::vector<std::unique_ptr<Member>> members_;

  std::atomic<std::uint64_t> meetings_{0};  // that all ranks came to
  std::atomic<bool> failed_{false};
  mutable std::mutex lock_;
  std::condition_variable changed_;
  std::vector<bool> arrived_;
  std::vector<Call> calls_;
  int arrived_count_ = 0;
  std::optional<Error> failure_;
};

}  // namespace motley::dist
