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
#include "engine/events.h"
#include "server/output/transcript.h"

namespace motley::server {

// Carries what the engine says of a request's prompts to the connection that waits for it. The
// executor must live until the engine has let go of all sinks.
class Mailbox : public std::enable_shared_from_this<Mailbox> {
 public:
  // Far more than a connection leaves untaken.
  static constexpr std::size_t default_max_bytes = std::size_t{256} << 20;

  // Holds at most so many bytes of news, unless limit_backlog() says otherwise: beyond it next()
  // gives an error.
  explicit Mailbox(const boost::asio::any_io_executor& executor,
                   std::size_t max_bytes = default_max_bytes)
      : max_unlimited_bytes_(max_bytes), max_backlog_bytes_(max_bytes), wake_(executor) {}

  // Hears of the request that answers that prompt.
  std::shared_ptr<engine::RequestSink> sink_for(std::size_t prompt);

  // On the executor: the engine may run so far ahead of the connection, in bytes of tokens that
  // wait. Beyond it all news is dropped and the notice is called, once; null: that of the
  // constructor holds again.
  void limit_backlog(std::size_t max_bytes, std::function<void()> notice);

  // From any thread. Where no memory is left to wake the executor it looks by itself before long.
  void post(EngineNews news);
  // From any thread: news found no memory, so that next() gives an error and none any more.
  void lose();
  // On the executor: lets next() return though nothing has come.
  void wake();

  // All that has come and was not taken yet; waits for something. On the executor.
  boost::asio::awaitable<Result<std::vector<EngineNews>>> next();

 private:
  void tell();
  // Whether the executor will hear of what has come.
  bool wake_executor();

  const std::size_t max_unlimited_bytes_;
  std::mutex mutex_;
  std::vector<EngineNews> news_;
  std::size_t backlog_bytes_ = 0;
  std::size_t max_backlog_bytes_;
  bool overflowed_ = false;
  bool lost_ = false;
  bool notified_ = false;  // the executor will hear of what has come
  std::function<void()> overflow_notice_;
  bool woken_ = false;
  boost::asio::steady_timer wake_;
};

}  // namespace motley::server
