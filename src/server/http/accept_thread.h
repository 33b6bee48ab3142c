#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <thread>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "net/byte_stream.h"
#include "net/unix_socket.h"

namespace motley::server {

// Accepts connections in a thread of its own, so that a new one never waits for what the others
// have to do.
class AcceptThread {
 public:
  // Receives each connection, in that thread.
  using Serve = std::function<void(net::ByteStream)>;

  // What connections do runs on `connections`, which must outlive this.
  AcceptThread(boost::asio::io_context& connections, Serve serve);
  // stop() can only throw std::bad_alloc. NOLINTNEXTLINE(bugprone-exception-escape)
  ~AcceptThread() { stop(); }
  AcceptThread(const AcceptThread&) = delete;
  AcceptThread& operator=(const AcceptThread&) = delete;

  // Of acceptors.
  boost::asio::any_io_executor executor() { return context_.get_executor(); }
  // Accepts there, too. Before start().
  void add(net::Acceptor acceptor, std::optional<net::SocketFile> file);
  void start();
  // Stops listening; nothing is served after it returns.
  void stop();

 private:
  struct Listener {
    explicit Listener(net::Acceptor from) : acceptor(std::move(from)) {}

    net::Acceptor acceptor;
    boost::asio::steady_timer pause{acceptor.get_executor()};
    // Its coroutine holds it, too, and may end after the listener.
    std::shared_ptr<std::atomic<bool>> accepting = std::make_shared<std::atomic<bool>>(false);
    std::optional<net::SocketFile> file = {};
  };
  class Accepting;

  boost::asio::awaitable<void> accept(Listener& listener, std::shared_ptr<Accepting> held);
  boost::asio::awaitable<void> accept_one(Listener& listener);
  // Unless a coroutine accepts there already.
  void spawn_accept(Listener& listener);

  boost::asio::io_context& connections_;
  Serve serve_;
  boost::asio::io_context context_{1};
  // Keeps the thread running until stop(), whatever is lost.
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  std::atomic<bool> stopping_{false};
  std::list<Listener> listeners_;
  std::thread thread_;
};

}  // namespace motley::server
