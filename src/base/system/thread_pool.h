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

// Threads for compute: a call costs about a microsecond (bench/thread_pool.cc), because workers
// spin for a moment before they sleep; one that finds them asleep costs what waking them does. Only
// those are woken that get something to do, so that small work on a large machine stays small. Work
// is cut by index ranges that depend only on the count and the pool's size, never on timing, and a
// body must not throw, but for the end of memory, which run() throws on once all ranks have ended.
class ThreadPool {
 public:
  struct Options {
    // The calling thread counts as one; 0 takes every usable processor.
    int threads = 0;
    // Ties each worker to a processor if the pool has a thread for every processor that the process
    // may use, so that it owns the machine. Two pinned pools would fight: tests never pin.
    bool pin = false;
    // How long a thread without work burns its processor before it sleeps.
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
  // when all are done. One call at a time: a second caller waits. A body must not call its own
  // pool, nor may a pool that it calls.
  void run(FunctionRef<void(int rank)> body);

  // Cuts [0, count) into at most size() ranges of nearly equal length, none shorter than `grain`
  // unless it is the only one, and calls body(begin, end) for each at once.
  void for_ranges(std::int64_t count, std::int64_t grain,
                  FunctionRef<void(std::int64_t begin, std::int64_t end)> body);

  // Calls body(task) for every task in [0, tasks), handed out in order to the next idle of at most
  // `threads` is free: for tasks of unequal length that write to places of their own.
  void for_tasks(std::int64_t tasks, std::int64_t threads,
                 FunctionRef<void(std::int64_t task)> body);
  void for_tasks(std::int64_t tasks, FunctionRef<void(std::int64_t task)> body) {
    for_tasks(tasks, size_, body);
  }

 private:
  // Its calls, counted by the caller, on a cache line of its own: it sleeps on them.
  struct alignas(64) Worker {
    std::atomic<std::uint32_t> calls{0};
    std::thread thread;
  };

  // As run(), for ranks below `ranks`.
  void run_first(int ranks, FunctionRef<void(int rank)> body);
  void work(int rank, std::atomic<std::uint32_t>& calls);
  // Returns when word no longer holds `old`.
  void wait_while_equal(std::atomic<std::uint32_t>& word, std::uint32_t old) const;

  int size_;
  bool pinned_ = false;
  std::chrono::microseconds spin_;
  std::mutex one_call_;
  std::vector<Worker> workers_;  // of ranks 1 and on

  // The call that runs: written before a worker's calls move on, read after that is seen.
  const FunctionRef<void(int)>* body_ = nullptr;
  const RunningBody* caller_ = nullptr;
  bool stopping_ = false;
  std::atomic<bool> out_of_memory_ = false;  // in a body

  alignas(64) std::atomic<std::uint32_t> unfinished_{0};
};

}  // namespace motley
