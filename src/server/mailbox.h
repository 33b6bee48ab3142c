#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/result.h"
#include "engine/requests/events.h"
#include "server/output/transcript.h"

namespace motley::server {

// Carries the engine's events of a request's prompts to the connection that waits for them. The
// executor must live until the engine has released all sinks.
class Mailbox : public std::enable_shared_from_this<Mailbox> {
 public:
  // Far more than a connection leaves unread.
  static constexpr std::size_t default_max_bytes = std::size_t{256} << 20;

  // Holds at most this many bytes of messages, unless limit_backlog() changes that: beyond it
  // next() returns an error.
  explicit Mailbox(const boost::asio::any_io_executor& executor,
                   std::size_t max_bytes = default_max_bytes)
      : max_unlimited_bytes_(max_bytes), max_backlog_bytes_(max_bytes), wake_(executor) {}

  // The sink of the engine request for that prompt.
  std::shared_ptr<engine::RequestSink> sink_for(std::size_t prompt);

  // On the executor: how many bytes of messages may wait. Beyond that all messages are dropped, and
  // the notice is called once. Null: the limit of the constructor applies again.
  void limit_backlog(std::size_t max_bytes, std::function<void()> notice);

  // Thread-safe. If there is no memory to wake the executor, it polls soon.
  void post(EngineNews news);
  // Thread-safe: a message found no memory, so next() returns an error from now on.
  void lose();
  // On the executor: lets next() return without a message.
  void wake();

  // Waits for messages, and returns all that have arrived. On the executor.
  boost::asio::awaitable<Result<std::vector<EngineNews>>> next();

 private:
  void tell();
  // Whether the executor will be notified.
  bool wake_executor();

  const std::size_t max_unlimited_bytes_;
  std::mutex mutex_;
  std::vector<EngineNews> news_;
  std::size_t backlog_bytes_ = 0;
  std::size_t max_backlog_bytes_;
  bool overflowed_ = false;
  bool lost_ = false;
  bool notified_ = false;  // the executor will be notified of new messages
  std::function<void()> overflow_notice_;
  bool woken_ = false;
  boost::asio::steady_timer wake_;
};

}  // namespace motley::server
