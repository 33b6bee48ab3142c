#include "net/connect.h"

#include <utility>

#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/this_coro.hpp>

namespace motley::net {
namespace {

namespace asio = boost::asio;

asio::awaitable<Result<ByteStream>> connect_unix(const ServerUrl& url) {
  using asio::local::stream_protocol;
  stream_protocol::socket socket(co_await asio::this_coro::executor);
  const stream_protocol::endpoint end(url.unix_socket.native());
  const auto [refused] = co_await socket.async_connect(end, no_throw);
  if (refused) co_return url.failed("reach the server", refused.message());
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

asio::awaitable<Result<ByteStream>> connect(const ServerUrl& url) {
  return url.unix_socket.empty() ? connect_tcp(url) : connect_unix(url);
}

}  // namespace motley::net
