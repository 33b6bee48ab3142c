#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>

#include "base/result.h"
#include "net/byte_stream.h"
#include "server/http/accept_thread.h"
#include "server/http/connections/connection.h"
#include "server/http/connections/connection_table.h"
#include "server/http/connections/pipeline_turns.h"

namespace motley::server {

// Listens, and serves any number of connections with a few threads. Another thread accepts them.
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
  Result<void> bind_tcp(const Options& options);
  Result<void> bind_unix(const std::filesystem::path& path);
  void serve(net::ByteStream stream);

  boost::asio::io_context context_;
  // Keeps the threads running until stop(), whatever is lost.
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  std::uint16_t port_ = 0;
  bool loopback_ = true;
  int thread_count_;
  MemoryBudget bodies_;
  ConnectionTable table_;
  SteadyTimers system_time_;
  PipelineTurns turns_;
  ConnectionContext shared_;
  AcceptThread accepting_;
  std::vector<std::thread> threads_;
};

}  // namespace motley::server
