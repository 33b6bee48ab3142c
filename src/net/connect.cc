#include "net/connect.h"

#include <cerrno>
#include <chrono>
#include <sys/socket.h>
#include <system_error>
#include <tuple>
#include <utility>

#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>

namespace motley::net {
namespace {

namespace asio = boost::asio;

constexpr auto pause = std::chrono::milliseconds(10);  // between two tries

// 0, or why not. A Unix socket is connected at once or not at all: EAGAIN is a full queue, which
// Asio takes for a connection that is under way.
int connect_now(asio::local::stream_protocol::socket& socket,
                const asio::local::stream_protocol::endpoint& end) {
  const auto size = static_cast<socklen_t>(end.size());
  return ::connect(socket.native_handle(), end.data(), size) == 0 ? 0 : errno;
}

asio::awaitable<Result<ByteStream>> connect_unix(const ServerUrl& url, int tries) {
  using asio::local::stream_protocol;
  stream_protocol::socket socket(co_await asio::this_coro::executor);
  const stream_protocol::endpoint end(url.unix_socket.native());
  boost::system::error_code failure;
  std::ignore = socket.open(stream_protocol(), failure);
  if (!failure) std::ignore = socket.native_non_blocking(true, failure);
  if (failure) co_return url.failed("reach the server", failure.message());
  asio::steady_timer timer(socket.get_executor());
  int why = connect_now(socket, end);
  for (int left = tries - 1; left > 0 && (why == EAGAIN || why == EINTR); --left) {
    timer.expires_after(pause);
    co_await timer.async_wait(no_throw);
    why = connect_now(socket, end);
  }
  if (why == EAGAIN)
    co_return url.failed("reach the server", "it accepts none of the clients that wait for it");
  if (why != 0) co_return url.failed("reach the server", std::generic_category().message(why));
  co_return ByteStream(std::move(socket));
}

asio::awaitable<Result<ByteStream>> connect_tcp(const ServerUrl& url) {
  using asio::ip::tcp;
  tcp::resolver resolver(co_await asio::this_coro::executor);
  const auto [unknown, ends] = co_await resolver.async_resolve(url.host, url.port, no_throw);
  if (unknown) co_return url.failed("find the server", unknown.message());
  tcp::socket socket(resolver.get_executor());
  const auto [refused, end] = co_await asio::async_connect(socket, ends, no_throw);
  if (refused) co_return url.failed("reach the server", refused.message());
  co_return ByteStream(std::move(socket));
}

}  // namespace

asio::awaitable<Result<ByteStream>> connect(const ServerUrl& url, int tries) {
  return url.unix_socket.empty() ? connect_tcp(url) : connect_unix(url, tries);
}

}  // namespace motley::net
