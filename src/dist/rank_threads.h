#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/function_ref.h"
#include "base/result.h"
#include "base/system/clock.h"
#include "dist/communicator.h"

namespace motley::dist {

// A thread for every rank but the first, whose thread is the caller's.
class RankThreads {
 public:
  // What a rank looks at on its own thread behind its work, again and again until it is true
  // or the next call begins: whether its GPU is done. An error ends the group. Empty: nothing.
  using Watch = std::function<Result<bool>(int rank)>;
  // The group must outlive it, and the clock of the waits too; null: the steady clock.
  explicit RankThreads(RankGroup& group, Watch watch = {}, const Clock* clock = nullptr);
  static constexpr std::chrono::microseconds between_looks{100};
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;
  ~RankThreads();

  // Calls work(rank) once for every rank, each on its own thread, and returns when all have ended:
  // rank 0's error, or else that of the rank that failed first. An error of one, also of memory
  // that runs out, ends the group, so that the others don't wait for it. One call at a time.
  Result<void> run(FunctionRef<Result<void>(int rank)> work);

 private:
  void serve(int rank);
  Result<void> run_own(int rank, FunctionRef<Result<void>(int rank)> work);
  // False: it needs no further look.
  bool look_again(int rank);

  RankGroup& group_;
  Watch watch_;
  const Clock& clock_;
  std::mutex lock_;
  std::condition_variable changed_;
  std::uint64_t calls_ = 0;
  int unfinished_ = 0;
  bool stopping_ = false;
  const FunctionRef<Result<void>(int)>* work_ = nullptr;  // of the current call
  std::vector<std::thread> threads_;                      // of ranks 1 and on
};

}  // namespace motley::dist
