#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "base/function_ref.h"

namespace motley {

struct RunningBody;

// Threads for computing. A call costs about a microsecond (bench/thread_pool.cc), because workers
// spin briefly before they sleep; waking sleeping workers costs more. Only workers that get work
// are woken, so small work stays cheap on a large machine. Work is divided by index ranges that
// depend only on the count and the pool's size, never on timing. A body must not throw, except
// std::bad_alloc, which run() rethrows once all ranks have ended.
class ThreadPool {
 public:
  struct Options {
    // Including the calling thread; 0: every usable processor.
    int threads = 0;
    // Pins each worker to a processor if the pool has a thread for every processor that the process
    // may use, and so owns the machine. Two pinned pools would compete; tests never pin.
    bool pin = false;
    // How long an idle thread spins before it sleeps.
    std::chrono::microseconds spin{50};
  };

  explicit ThreadPool(const Options& options);
  ThreadPool() : ThreadPool(Options{}) {}
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  int size() const { return size_; }
  bool pinned() const { return pinned_; }

  // Calls body(rank) once for every rank in [0, size), rank 0 on the calling thread, and returns
  // when all are done. A concurrent caller waits. A body must not call its own pool, not even
  // through another pool.
  void run(FunctionRef<void(int rank)> body);

  // Divides [0, count) into at most size() ranges of almost equal length, none shorter than `grain`
  // unless it is the only one, and calls body(begin, end) for each concurrently.
  void for_ranges(std::int64_t count, std::int64_t grain,
                  FunctionRef<void(std::int64_t begin, std::int64_t end)> body);

  // Calls body(task) for every task in [0, tasks), on at most `threads` threads that take tasks in
  // order: for tasks of unequal length that write to separate places.
  void for_tasks(std::int64_t tasks, std::int64_t threads,
                 FunctionRef<void(std::int64_t task)> body);
  void for_tasks(std::int64_t tasks, FunctionRef<void(std::int64_t task)> body) {
    for_tasks(tasks, size_, body);
  }

 private:
  // The number of its calls, incremented by the caller, on a cache line of its own: the worker
  // sleeps on it.
  struct alignas(64) Worker {
    std::atomic<std::uint32_t> calls{0};
    std::thread thread;
  };

  // Like run(), for ranks below `ranks`.
  void run_first(int ranks, FunctionRef<void(int rank)> body);
  void work(int rank, std::atomic<std::uint32_t>& calls);
  // Returns when `word` differs from `old`.
  void wait_while_equal(std::atomic<std::uint32_t>& word, std::uint32_t old) const;

  int size_;
  bool pinned_ = false;
  std::chrono::microseconds spin_;
  std::mutex one_call_;
  std::vector<Worker> workers_;  // for ranks 1 and on

  // The current call: written before workers are notified, read after.
  const FunctionRef<void(int)>* body_ = nullptr;
  const RunningBody* caller_ = nullptr;
  bool stopping_ = false;
  std::atomic<bool> out_of_memory_ = false;  // in a body

  alignas(64) std::atomic<std::uint32_t> unfinished_{0};
};

}  // namespace motley
