#include "base/system/thread_pool.h"

#include <algorithm>
#include <immintrin.h>
#include <pthread.h>
#include <sched.h>
#include <thread>

#include "base/check.h"
#include "base/system/cpu.h"
#include "base/system/out_of_memory.h"

namespace motley {

// A body that a thread is running, and the one from which its pool was called.
struct RunningBody {
  const ThreadPool* pool;
  const RunningBody* outer;
};

namespace {

// The innermost body that this thread is running.
constinit thread_local const RunningBody* running = nullptr;

void require_not_running(const ThreadPool* pool) {
  for (const RunningBody* each = running; each != nullptr; each = each->outer)
    MOTLEY_CHECK(each->pool != pool, "a body must not call its own pool");
}

void pin_to(pthread_t thread, int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  // Failure (by a container's policy) only costs speed.
  ::pthread_setaffinity_np(thread, sizeof set, &set);
}

}  // namespace

ThreadPool::ThreadPool(const Options& options)
    : size_(options.threads > 0 ? options.threads : usable_cpus()), spin_(options.spin) {
  const std::vector<int> cpus = allowed_cpus();
  pinned_ = options.pin && size_ > 1 && size_ == static_cast<int>(cpus.size()) &&
            size_ == usable_cpus() && cpus.size() == std::thread::hardware_concurrency();
  workers_ = std::vector<Worker>(static_cast<std::size_t>(size_ - 1));
  for (int rank = 1; rank < size_; ++rank) {
    Worker& worker = workers_[static_cast<std::size_t>(rank - 1)];
    worker.thread = std::thread([this, rank, &worker] { work(rank, worker.calls); });
    if (pinned_) pin_to(worker.thread.native_handle(), cpus[static_cast<std::size_t>(rank)]);
  }
}

ThreadPool::~ThreadPool() {
  stopping_ = true;
  for (Worker& worker : workers_) {
    worker.calls.fetch_add(1, std::memory_order_release);
    worker.calls.notify_one();
  }
  for (Worker& worker : workers_) worker.thread.join();
}

void ThreadPool::run(FunctionRef<void(int rank)> body) { run_first(size_, body); }

void ThreadPool::run_first(int ranks, FunctionRef<void(int rank)> body) {
  require_not_running(this);
  const RunningBody here{.pool = this, .outer = running};
  const std::lock_guard lock(one_call_);
  body_ = &body;
  caller_ = here.outer;
  unfinished_.store(static_cast<std::uint32_t>(ranks - 1), std::memory_order_relaxed);
  for (int rank = 1; rank < ranks; ++rank) {
    Worker& worker = workers_[static_cast<std::size_t>(rank - 1)];
    worker.calls.fetch_add(1, std::memory_order_release);
    worker.calls.notify_one();
  }

  running = &here;
  Result<void> done = within_memory([&] { body(0); });
  running = here.outer;
  for (std::uint32_t left = unfinished_.load(std::memory_order_acquire); left != 0;
       left = unfinished_.load(std::memory_order_acquire)) {
    wait_while_equal(unfinished_, left);
  }
  // Thrown on the calling thread, as if it had done all the work.
  if (out_of_memory_.exchange(false) || !done.ok()) throw std::bad_alloc();
}

void ThreadPool::for_ranges(std::int64_t count, std::int64_t grain,
                            FunctionRef<void(std::int64_t, std::int64_t)> body) {
  if (count <= 0) return;
  const std::int64_t ranges =
      std::clamp<std::int64_t>(count / std::max<std::int64_t>(grain, 1), 1, size_);
  run_first(static_cast<int>(ranges), [&](int rank) {
    // The first count % ranges ranges are one longer.
    const std::int64_t length = count / ranges;
    const std::int64_t longer = count % ranges;
    const std::int64_t begin = rank * length + std::min<std::int64_t>(rank, longer);
    body(begin, begin + length + (rank < longer ? 1 : 0));
  });
}

void ThreadPool::for_tasks(std::int64_t tasks, std::int64_t threads,
                           FunctionRef<void(std::int64_t)> body) {
  if (tasks <= 0) return;
  const std::int64_t ranks = std::clamp<std::int64_t>(std::min(tasks, threads), 1, size_);
  std::atomic<std::int64_t> next{0};
  run_first(static_cast<int>(ranks), [&](int) {
    for (std::int64_t task = next.fetch_add(1, std::memory_order_relaxed); task < tasks;
         task = next.fetch_add(1, std::memory_order_relaxed)) {
      body(task);
    }
  });
}

void ThreadPool::work(int rank, std::atomic<std::uint32_t>& calls) {
  std::uint32_t seen = 0;
  while (true) {
    wait_while_equal(calls, seen);
    // run_first() waits for the workers it has called, so the count advances by one at a time.
    ++seen;
    if (stopping_) return;
    // Workers inherit the caller's bodies, because they wait for each other.
    const RunningBody here{.pool = this, .outer = caller_};
    running = &here;
    if (!within_memory([&] { (*body_)(rank); }).ok()) out_of_memory_ = true;
    running = nullptr;
    if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) unfinished_.notify_one();
  }
}

void ThreadPool::wait_while_equal(std::atomic<std::uint32_t>& word, std::uint32_t old) const {
  // The clock is read once per batch of pauses, because it costs as much as several of them.
  constexpr int pauses_between_looks_at_the_clock = 32;
  const auto end = std::chrono::steady_clock::now() + spin_;
  do {
    for (int i = 0; i < pauses_between_looks_at_the_clock; ++i) {
      if (word.load(std::memory_order_acquire) != old) return;
      _mm_pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  word.wait(old, std::memory_order_acquire);
}

}  // namespace motley
