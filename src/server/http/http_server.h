#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/result.h"
#include "server/http/connection.h"

namespace motley::server {

// Listens, and serves any number of connections on a few threads.
class HttpServer {
 public:
  struct Options {
    std::string host = "127.0.0.1";  // a name or an address
    std::uint16_t port = 0;          // 0: the kernel picks one
    int threads = 2;
    HttpLimits limits = {};
  };

  // Listens from now on, and answers once start() is called.
  static Result<std::unique_ptr<HttpServer>> listen(
      const Options& options, HttpHandler handler,
      std::function<HttpResponse(const Error&)> refuse);
  // Whoever may still post to its executors (Mailbox) must be gone by then.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  void start();
  std::uint16_t port() const { return port_; }
  std::size_t connections() const;

  // Closes idle connections, and the others behind the answer that they wait for. Who comes later
  // is still heard, so that the handler can say why nothing is served. Returns when no connection
  // is left that was there before.
  void drain();
  // Closes everything; no handler runs any more when it returns.
  void stop();

 private:
  HttpServer(const Options& options, HttpHandler handler,
             std::function<HttpResponse(const Error&)> refuse);
  Result<void> bind(const Options& options);
  boost::asio::awaitable<void> accept();
  void serve(Connection::Socket socket);

  boost::asio::io_context context_;
  boost::asio::ip::tcp::acceptor acceptor_;
  boost::asio::steady_timer pause_;
  std::uint16_t port_ = 0;
  int thread_count_;
  BodyBudget bodies_;
  ConnectionContext shared_;

  mutable std::mutex mutex_;
  std::condition_variable closed_;
  bool closing_ = false;
  std::unordered_set<std::shared_ptr<Connection>> open_;

  std::vector<std::thread> threads_;
};

}  // namespace motley::server
