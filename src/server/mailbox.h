#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/result.h"
#include "engine/requests/event_queue.h"

namespace motley::server {

// Lets a connection's coroutine wait for the engine's events of a request's prompts. Everything but
// the sinks is used on the executor, which must live until the engine has released all of them.
class Mailbox : public std::enable_shared_from_this<Mailbox> {
 public:
  using Entries = std::vector<engine::EventQueue::Entry>;

  // Holds at most this many bytes of events, unless limit_backlog() changes that: beyond it next()
  // returns an error.
  static std::shared_ptr<Mailbox> make(
      const boost::asio::any_io_executor& executor,
      std::size_t max_bytes = engine::EventQueue::default_max_bytes);

  // The sink of the engine request for that prompt.
  std::shared_ptr<engine::EventSink> sink_for(std::size_t prompt) {
    return queue_->sink_for(prompt);
  }

  // How many bytes of events may wait. Beyond that all events are dropped, and the notice is called
  // once. Null: the first limit applies again.
  void limit_backlog(std::size_t max_bytes, std::function<void()> notice);

  // Lets next() return without an event.
  void wake();

  // Waits for events, and returns all that have arrived.
  boost::asio::awaitable<Result<Entries>> next();

 private:
  Mailbox(const boost::asio::any_io_executor& executor, std::size_t max_bytes)
      : max_bytes_(max_bytes), wake_(executor) {}

  // On any thread. If there is no memory to wake the executor, it polls soon.
  bool wake_executor();
  void give_notice();

  const std::size_t max_bytes_;
  std::shared_ptr<engine::EventQueue> queue_;
  bool limited_ = false;
  std::function<void()> overflow_notice_;
  bool woken_ = false;
  boost::asio::steady_timer wake_;
};

}  // namespace motley::server
