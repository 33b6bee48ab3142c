#include "server/http/http_server.h"

#include <algorithm>
#include <new>
#include <sys/resource.h>
#include <tuple>
#include <utility>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "base/cat.h"
#include "base/log.h"
#include "base/system/out_of_memory.h"
#include "server/http/run_context.h"

namespace motley::server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

// The wanted number, or what the system's limit allows.
std::size_t connections_that_fit(std::size_t wanted) {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur == RLIM_INFINITY) return wanted;
  const auto limit = static_cast<std::size_t>(files.rlim_cur);
  const std::size_t fit = limit - std::min(reserved_descriptors, limit / reserved_descriptors_part);
  if (fit < wanted)
    log::warning("http.fewer_connections",
                 {{"connections", fit},
                  {"descriptors", limit},
                  {"advice", "raise the limit on open files (ulimit -n) for more"}});
  return std::min(wanted, fit);
}

// Handles the end of a connection in every case: if memory runs out, Asio may lose the coroutine
// and its completion handler.
class Departure {
 public:
  Departure(ConnectionTable& table, std::shared_ptr<Connection> connection)
      : table_(table), connection_(std::move(connection)) {}
  ~Departure() {
    if (!ended_) {
      std::ignore = within_memory([] { throw std::bad_alloc(); });  // it is counted
      connection_->end_without_memory();
    }
    table_.remove(*connection_);
  }
  Departure(const Departure&) = delete;
  Departure& operator=(const Departure&) = delete;

  void ended() { ended_ = true; }

 private:
  ConnectionTable& table_;
  std::shared_ptr<Connection> connection_;
  bool ended_ = false;
};

}  // namespace

HttpServer::HttpServer(const Options& options, HttpHooks hooks)
    : context_(options.threads),
      work_(context_.get_executor()),
      thread_count_(options.threads),
      bodies_(options.limits.all_bodies_bytes, options.limits.address_bodies_bytes),
      table_(connections_that_fit(options.limits.connections), options.limits.address_connections),
      turns_(context_.get_executor()),
      shared_{.limits = options.limits,
              .hooks = std::move(hooks),
              .proxies = options.proxies,
              .timers = options.timers != nullptr ? options.timers : &system_time_,
              .bodies = &bodies_,
              .table = &table_,
              .turns = &turns_},
      accepting_(context_, [this](net::ByteStream stream) { serve(std::move(stream)); }) {}

Result<std::unique_ptr<HttpServer>> HttpServer::listen(const Options& options, HttpHooks hooks) {
  std::unique_ptr<HttpServer> server(new HttpServer(options, std::move(hooks)));
  if (options.tcp) MOTLEY_TRY_VOID(server->bind_tcp(options));
  if (!options.unix_socket.empty()) MOTLEY_TRY_VOID(server->bind_unix(options.unix_socket));
  return server;
}

Error HttpServer::listen_error(const Options& options, const boost::system::error_code& failure) {
  constexpr std::uint16_t first_of_users = 1024;
  std::string what =
      cat("can't listen on ", options.host, ":", options.port, ": ", failure.message());
  if (failure == boost::system::errc::address_not_available)
    return {ErrorCode::io, cat(quote(options.host), " is no address of this machine"), "--host",
            "give one that it has, such as 127.0.0.1; 0.0.0.0 is all of them"};
  if (failure == boost::system::errc::permission_denied && options.port < first_of_users)
    return {ErrorCode::io, std::move(what), "--port",
            "ports below 1024 are root's: choose another, such as 8000, or allow the program to "
            "(setcap cap_net_bind_service=+ep)"};
  return {ErrorCode::io, std::move(what), "--port",
          "free the port, or choose another; 0 lets the system choose"};
}

Result<void> HttpServer::bind_tcp(const Options& options) {
  boost::system::error_code failure;
  tcp::resolver resolver(context_);
  const auto found =
      resolver.resolve(options.host, std::to_string(options.port), tcp::resolver::passive, failure);
  if (failure || found.empty())
    return Error(ErrorCode::invalid_argument, cat("unknown host ", quote(options.host)), "--host",
                 "give an address of this machine, such as 127.0.0.1 or 0.0.0.0");
  const tcp::endpoint endpoint = found.begin()->endpoint();
  tcp::acceptor acceptor(accepting_.executor());
  std::ignore = acceptor.open(endpoint.protocol(), failure);
  if (!failure) std::ignore = acceptor.set_option(tcp::acceptor::reuse_address(true), failure);
  if (!failure) std::ignore = acceptor.bind(endpoint, failure);
  if (!failure) std::ignore = acceptor.listen(asio::socket_base::max_listen_connections, failure);
  if (failure) return listen_error(options, failure);
  const tcp::endpoint bound = acceptor.local_endpoint(failure);
  port_ = bound.port();
  loopback_ = bound.address().is_loopback();
  accepting_.add(net::Acceptor(std::move(acceptor)), std::nullopt);
  return {};
}

Result<void> HttpServer::bind_unix(const std::filesystem::path& path) {
  net::Acceptor acceptor(accepting_.executor());
  Result<net::SocketFile> file = net::SocketFile::listen(path, acceptor);
  if (!file.ok()) return std::move(file).error().within("--listen");
  accepting_.add(std::move(acceptor), *std::move(file));
  return {};
}

// stop() can only throw std::bad_alloc. NOLINTNEXTLINE(bugprone-exception-escape)
HttpServer::~HttpServer() { stop(); }

void HttpServer::stop() {
  if (threads_.empty()) return;
  accepting_.stop();
  work_.reset();
  table_.close();
  // When the last connection has closed, the threads run out of work.
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void HttpServer::start() {
  accepting_.start();
  for (int i = 0; i < thread_count_; ++i)
    threads_.emplace_back([this] { run_context(context_, [] {}); });
}

HttpStats HttpServer::stats() const {
  HttpStats stats = table_.stats();
  stats.body_bytes = bodies_.used_bytes();
  return stats;
}

void HttpServer::serve(net::ByteStream stream) {
  const auto executor = stream.executor();
  const auto connection = std::make_shared<Connection>(std::move(stream), shared_);
  const auto entry = table_.add(connection);
  if (entry == ConnectionTable::Entry::closed) return;
  try {
    const auto departure = std::make_shared<Departure>(table_, connection);
    auto life = entry == ConnectionTable::Entry::added ? connection->run()
                : entry == ConnectionTable::Entry::full
                    ? connection->turn_away("too many connections")
                    : connection->turn_away("too many connections from this address");
    asio::co_spawn(executor, std::move(life), [departure](const std::exception_ptr& thrown) {
      if (!thrown) departure->ended();
      if (thrown) log::error("http.connection_failed", {{"why", "out of memory"}});
    });
  } catch (const std::bad_alloc&) {
    log::error("http.connection_failed", {{"why", "out of memory"}});
    table_.remove(*connection);
  }
}

}  // namespace motley::server
