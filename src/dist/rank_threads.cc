#include "dist/rank_threads.h"

#include "base/system/out_of_memory.h"

namespace motley::dist {

RankThreads::RankThreads(RankGroup& group) : group_(group) {
  for (int rank = 1; rank < group.ranks(); ++rank)
    threads_.emplace_back([this, rank] { serve(rank); });
}

RankThreads::~RankThreads() {
  {
    const std::lock_guard held(lock_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

// An error, or an exception, ends the group.
Result<void> RankThreads::run_own(int rank) {
  Communicator& own = group_.rank(rank);
  Result<void> done = within_memory([&] { return (*work_)(rank); });
  if (!done.ok()) own.fail(done.error());
  return done;
}

void RankThreads::serve(int rank) {
  std::uint64_t served = 0;
  std::unique_lock held(lock_);
  for (;;) {
    changed_.wait(held, [&] { return stopping_ || calls_ != served; });
    if (stopping_) return;
    served = calls_;
    held.unlock();
    // The group keeps the error.
    static_cast<void>(run_own(rank).ok());
    held.lock();
    if (--unfinished_ == 0) changed_.notify_all();
  }
}

Result<void> RankThreads::run(FunctionRef<Result<void>(int rank)> work) {
  MOTLEY_TRY_VOID(group_.rank(0).status());
  {
    const std::lock_guard held(lock_);
    work_ = &work;
    unfinished_ = group_.ranks() - 1;
    ++calls_;
  }
  changed_.notify_all();
  Result<void> own = run_own(0);
  {
    std::unique_lock held(lock_);
    changed_.wait(held, [&] { return unfinished_ == 0; });
    work_ = nullptr;
  }
  if (!own.ok()) return own;
  return group_.rank(0).status();
}

}  // namespace motley::dist
