#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/result.h"
#include "net/unix_socket.h"
#include "server/http/connection.h"
#include "server/http/connection_table.h"
#include "server/http/pipeline_turns.h"

namespace motley::server {

// Listens, and serves any number of connections with a few threads. Another thread accepts them, so
// that a new one never waits for what the others have to do.
class HttpServer {
 public:
  struct Options {
    bool tcp = true;
    std::string host = "127.0.0.1";  // a name or an address
    std::uint16_t port = 0;          // 0: the kernel picks one
    std::filesystem::path unix_socket = {};
    int threads = 2;
    HttpLimits limits = {};
    TrustedProxies proxies = {};
    Timers* timers = nullptr;  // must outlive the server; null: the system's
  };

  // Listens from now on, and answers after start().
  static Result<std::unique_ptr<HttpServer>> listen(const Options& options, HttpHooks hooks);
  // Why these options can't be listened on, and what to change.
  static Error listen_error(const Options& options, const boost::system::error_code& failure);
  // Everything that may still post to its executors (Mailbox) must have been destroyed.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  void start();
  std::uint16_t port() const { return port_; }
  // Whether only programs on this machine can connect over TCP.
  bool is_loopback() const { return loopback_; }
  std::size_t connections() const { return table_.stats().connections; }
  HttpStats stats() const;

  // Closes idle connections at once, those with a partly sent request if it does not arrive soon,
  // and the others after their answer. New connections are still accepted, so that the hooks can
  // answer why nothing is served. Waits at most `wait`, and returns whether all connections of the
  // first call have gone; call again until they have.
  bool drain(std::chrono::milliseconds wait) { return table_.drain(wait); }
  // Closes everything; no handler runs after it returns.
  void stop();

 private:
  HttpServer(const Options& options, HttpHooks hooks);
  // Where clients come in.
  struct Door {
    explicit Door(const boost::asio::any_io_executor& executor)
        : acceptor(executor), pause(executor) {}

    net::Acceptor acceptor;
    boost::asio::steady_timer pause;
    // Its coroutine holds it, too, and may end after the door.
    std::shared_ptr<std::atomic<bool>> accepting = std::make_shared<std::atomic<bool>>(false);
    std::optional<net::SocketFile> file = {};
  };

  Door& add_door() { return doors_.emplace_back(accept_context_.get_executor()); }
  Result<void> bind_tcp(const Options& options);
  Result<void> bind_unix(const std::filesystem::path& path);
  class Accepting;
  boost::asio::awaitable<void> accept(Door& door, std::shared_ptr<Accepting> held);
  // Unless a coroutine accepts there already.
  void spawn_accept(Door& door);
  void spawn_accepts();
  boost::asio::awaitable<void> accept_one(Door& door);
  void serve(net::ByteStream stream);
  void run(boost::asio::io_context& context);

  boost::asio::io_context context_;
  boost::asio::io_context accept_context_{1};
  // Keep the threads running until stop(), whatever is lost.
  using WorkGuard = boost::asio::executor_work_guard<boost::asio::io_context::executor_type>;
  WorkGuard work_;
  WorkGuard accept_work_;
  std::atomic<bool> stopping_{false};
  std::list<Door> doors_;
  std::uint16_t port_ = 0;
  bool loopback_ = true;
  int thread_count_;
  MemoryBudget bodies_;
  ConnectionTable table_;
  SteadyTimers system_time_;
  PipelineTurns turns_;
  ConnectionContext shared_;

  std::thread accept_thread_;
  std::vector<std::thread> threads_;
};

}  // namespace motley::server
