#include "server/http/http_server.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/cat.h"
#include "base/log.h"

namespace motley::server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

constexpr auto no_throw = asio::as_tuple(asio::use_awaitable);
// Descriptors or memory have run out: others may close theirs meanwhile.
constexpr auto accept_pause = std::chrono::milliseconds(50);

}  // namespace

HttpServer::HttpServer(const Options& options, HttpHandler handler,
                       std::function<HttpResponse(const Error&)> refuse)
    : context_(options.threads),
      acceptor_(asio::make_strand(context_)),
      pause_(acceptor_.get_executor()),
      thread_count_(options.threads),
      bodies_(options.limits.all_bodies_bytes),
      shared_{.limits = options.limits,
              .handler = std::move(handler),
              .refuse = std::move(refuse),
              .bodies = &bodies_} {}

Result<std::unique_ptr<HttpServer>> HttpServer::listen(
    const Options& options, HttpHandler handler, std::function<HttpResponse(const Error&)> refuse) {
  std::unique_ptr<HttpServer> server(
      new HttpServer(options, std::move(handler), std::move(refuse)));
  MOTLEY_TRY_VOID(server->bind(options));
  return server;
}

Result<void> HttpServer::bind(const Options& options) {
  boost::system::error_code failure;
  tcp::resolver resolver(context_);
  const auto found =
      resolver.resolve(options.host, std::to_string(options.port), tcp::resolver::passive, failure);
  if (failure || found.empty())
    return Error(ErrorCode::invalid_argument, cat("unknown host ", quote(options.host)), "--host",
                 "give an address of this machine, such as 127.0.0.1 or 0.0.0.0");
  const tcp::endpoint endpoint = found.begin()->endpoint();
  std::ignore = acceptor_.open(endpoint.protocol(), failure);
  if (!failure) std::ignore = acceptor_.set_option(tcp::acceptor::reuse_address(true), failure);
  if (!failure) std::ignore = acceptor_.bind(endpoint, failure);
  if (!failure) std::ignore = acceptor_.listen(asio::socket_base::max_listen_connections, failure);
  if (failure)
    return Error(ErrorCode::io,
                 cat("can't listen on ", options.host, ":", options.port, ": ", failure.message()),
                 "--port", "free the port, or choose another; 0 lets the system choose");
  port_ = acceptor_.local_endpoint(failure).port();
  return {};
}

// All that stop() can throw is that the memory has ended. NOLINTNEXTLINE(bugprone-exception-escape)
HttpServer::~HttpServer() { stop(); }

void HttpServer::stop() {
  if (threads_.empty()) return;
  asio::post(acceptor_.get_executor(), [this] {
    boost::system::error_code ignored;
    std::ignore = acceptor_.close(ignored);
    pause_.cancel();
  });
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    for (const auto& connection : open_) connection->abort();
  }
  // The last connection that closes lets the threads run out of work.
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void HttpServer::start() {
  asio::co_spawn(acceptor_.get_executor(), accept(), asio::detached);
  for (int i = 0; i < thread_count_; ++i) threads_.emplace_back([this] { context_.run(); });
}

std::size_t HttpServer::connections() const {
  const std::lock_guard lock(mutex_);
  return open_.size();
}

asio::awaitable<void> HttpServer::accept() {
  while (acceptor_.is_open()) {
    auto [failure, socket] = co_await acceptor_.async_accept(asio::make_strand(context_), no_throw);
    if (!failure) {
      boost::system::error_code ignored;
      std::ignore = socket.set_option(tcp::no_delay(true), ignored);
      serve(std::move(socket));
    } else if (acceptor_.is_open()) {
      log::warning("http.accept_failed", {{"why", failure.message()}});
      pause_.expires_after(accept_pause);
      co_await pause_.async_wait(no_throw);
    }
  }
}

void HttpServer::serve(Connection::Socket socket) {
  const auto executor = socket.get_executor();
  const auto connection = std::make_shared<Connection>(std::move(socket), shared_);
  {
    const std::lock_guard lock(mutex_);
    if (closing_) return;
    open_.insert(connection);
  }
  asio::co_spawn(executor, connection->run(), [this, connection](const std::exception_ptr& thrown) {
    // Nothing of ours throws, but the standard library does where the memory ends.
    if (thrown) log::error("http.connection_failed", {{"why", "out of memory"}});
    const std::lock_guard lock(mutex_);
    open_.erase(connection);
    closed_.notify_all();
  });
}

void HttpServer::drain() {
  std::unique_lock lock(mutex_);
  const std::vector<std::shared_ptr<Connection>> before(open_.begin(), open_.end());
  for (const auto& connection : before) connection->finish();
  closed_.wait(lock, [&] {
    return std::ranges::none_of(before, [&](const auto& each) { return open_.contains(each); });
  });
}

}  // namespace motley::server
