#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>

#include "engine/events.h"
#include "server/output/transcript.h"

namespace motley::server {

// Carries what the engine says of a request's prompts to the connection that waits for it. The
// executor must live until the engine has let go of all sinks.
class Mailbox : public std::enable_shared_from_this<Mailbox> {
 public:
  explicit Mailbox(const boost::asio::any_io_executor& executor) : wake_(executor) {}

  // Hears of the request that answers that prompt.
  std::shared_ptr<engine::RequestSink> sink_for(std::size_t prompt);

  // From any thread.
  void post(EngineNews news);
  // On the executor: lets next() return though nothing has come.
  void wake();

  // All that has come and was not taken yet; waits for something. On the executor.
  boost::asio::awaitable<std::vector<EngineNews>> next();

 private:
  std::mutex mutex_;
  std::vector<EngineNews> news_;
  bool told_ = false;  // the executor will hear of what has come
  bool woken_ = false;
  boost::asio::steady_timer wake_;
};

}  // namespace motley::server
