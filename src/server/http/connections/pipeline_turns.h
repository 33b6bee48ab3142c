#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <utility>

#include <boost/asio/any_io_executor.hpp>

namespace motley::server {

// Connections whose clients have sent requests before the last was answered go on a few at a time,
// so that what is ready on the server's threads stays short, however many such connections there
// are. Thread-safe.
class PipelineTurns {
 public:
  // Runs on `executor`, which is that of all connections' threads.
  explicit PipelineTurns(boost::asio::any_io_executor executor) : executor_(std::move(executor)) {}

  // Calls `go_on` on one of the threads, after all that is ready there now. It must not block, and
  // may fail only for lack of memory.
  void wait(std::function<void()> go_on);

 private:
  void post_turn();
  void take_turn();

  boost::asio::any_io_executor executor_;
  std::mutex mutex_;
  std::deque<std::function<void()>> waiting_;
  bool posted_ = false;
};

}  // namespace motley::server
