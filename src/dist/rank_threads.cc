#include "dist/rank_threads.h"

#include <chrono>
#include <utility>

#include "base/system/clock.h"
#include "base/system/out_of_memory.h"

namespace motley::dist {

RankThreads::RankThreads(RankGroup& group, Watch watch, const Clock* clock)
    : group_(group), watch_(std::move(watch)), clock_(clock_or_steady(clock)) {
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
Result<void> RankThreads::run_own(int rank, FunctionRef<Result<void>(int rank)> work) {
  Communicator& own = group_.rank(rank);
  Result<void> done = within_memory([&] { return work(rank); });
  if (!done.ok()) own.fail(done.error());
  return done;
}

bool RankThreads::look_again(int rank) {
  bool done = false;
  Result<void> looked = within_memory([&]() -> Result<void> {
    MOTLEY_TRY(done, watch_(rank));
    return {};
  });
  if (!looked.ok()) group_.rank(rank).fail(looked.error());
  return looked.ok() && !done;
}

void RankThreads::serve(int rank) {
  // Steps of GPUs follow each other closely, and to wake a thread from deep sleep takes as long as
  // several sums.
  constexpr std::chrono::microseconds spin(200);
  std::uint64_t served = 0;
  bool looks = false;
  std::unique_lock held(lock_);
  const auto is_called = [&] { return stopping_ || calls_ != served; };
  const auto spin_until_called = [&] {
    const TimePoint begin = SteadyClock().now();
    while (!is_called() && SteadyClock().now() - begin < spin) {
      held.unlock();
      std::this_thread::yield();
      held.lock();
    }
  };
  for (;;) {
    if (looks && !clock_.wait_until(changed_, held, clock_.now() + between_looks, is_called)) {
      held.unlock();
      looks = look_again(rank);
      held.lock();
      if (!looks) spin_until_called();
      continue;
    }
    clock_.wait_until(changed_, held, TimePoint::max(), is_called);
    if (stopping_) return;
    served = calls_;
    held.unlock();
    // The group keeps the error.
    static_cast<void>(run_own(rank, *work_).ok());
    looks = static_cast<bool>(watch_);
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
  Result<void> own = run_own(0, work);
  {
    std::unique_lock held(lock_);
    changed_.wait(held, [&] { return unfinished_ == 0; });
    work_ = nullptr;
  }
  if (!own.ok()) return own;
  return group_.rank(0).status();
}

}  // namespace motley::dist
