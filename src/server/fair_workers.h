#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

namespace motley::server {

// Threads for longer work: parsing, rendering, tokenising. Clients take turns, each getting as many
// bytes as the others; a client's small tasks precede its large ones; and large tasks never occupy
// all threads.
class FairWorkers {
 public:
  struct Options {
    int threads = 2;
    std::size_t large_bytes = std::size_t{256} << 10;
  };
  struct Task;
  using Ticket = std::shared_ptr<Task>;

  explicit FairWorkers(const Options& options);
  // Waits for running tasks, and drops the others.
  ~FairWorkers();
  FairWorkers(const FairWorkers&) = delete;
  FairWorkers& operator=(const FairWorkers&) = delete;

  // `work` runs on one of the threads and must not throw; its time is proportional to `bytes`.
  Ticket submit(const std::string& client, std::size_t bytes, std::function<void()> work);
  // Runs the task next, because little of it is left to do.
  void hurry(const Ticket& ticket);

 private:
  struct Queue {
    std::deque<Ticket> small;
    std::deque<Ticket> large;
    std::uint64_t next = 0;  // its next turn, in bytes
  };

  void work();
  Ticket take_locked();
  Ticket take_of_locked(Queue& queue);
  bool may_take_large_locked() const { return large_running_ < max_large_; }
  void sweep_locked();

  Options options_;
  int max_large_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  int large_running_ = 0;
  std::uint64_t now_ = 0;
  std::unordered_map<std::string, Queue> queues_;
  std::deque<Ticket> hurried_;
  std::vector<std::thread> threads_;
};

}  // namespace motley::server
