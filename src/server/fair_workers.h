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
#include <vector>

#include "base/fair_flows.h"

namespace motley::server {

// Threads for longer work: parsing, rendering, tokenising. Clients take turns, each getting as many
// bytes as the others, times its weight; a client's small tasks precede its large ones; and large
// tasks never occupy all threads.
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

  struct Client {
    std::string name;
    std::uint32_t weight = 1;
  };
  // `work` runs on one of the threads and must not throw; its time is proportional to `bytes`.
  Ticket submit(const Client& client, std::size_t bytes, std::function<void()> work);
  // Runs the task next, because little of it is left to do.
  void hurry(const Ticket& ticket);

 private:
  struct Queue {
    std::deque<Ticket> small;
    std::deque<Ticket> large;

    bool idle() const { return small.empty() && large.empty(); }
  };

  void work();
  Ticket take_locked();
  Ticket first_of_locked(Queue& queue) const;
  bool may_take_large_locked() const { return large_running_ < max_large_; }

  Options options_;
  int max_large_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  int large_running_ = 0;
  FairFlows<Queue> clients_;  // costs are in bytes
  std::deque<Ticket> hurried_;
  std::vector<std::thread> threads_;
};

}  // namespace motley::server
