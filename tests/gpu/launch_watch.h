#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace motley::gpu_tests {

// Ends the program with a message that names a launch if it does not end while the watch lives. A
// kernel that waits forever cannot be stopped from its own process: without a watch the test runs
// into the limit of the whole program, and nothing says which launch it was.
class LaunchWatch {
 public:
  static constexpr std::chrono::seconds limit{60};

  explicit LaunchWatch(std::string launch)
      : thread_([this, launch = std::move(launch)] { wait(launch); }) {}
  LaunchWatch(const LaunchWatch&) = delete;
  LaunchWatch& operator=(const LaunchWatch&) = delete;
  ~LaunchWatch() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    change_.notify_one();
    thread_.join();
  }

 private:
  void wait(const std::string& launch) {
    std::unique_lock lock(mutex_);
    if (change_.wait_for(lock, limit, [this] { return ended_; })) return;
    std::fprintf(stderr, "a launch has not ended in %lld s (%s): see what its blocks wait for\n",
                 static_cast<long long>(limit.count()), launch.c_str());
    std::fflush(stderr);
    std::_Exit(1);
  }

  std::mutex mutex_;
  std::condition_variable change_;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace motley::gpu_tests
