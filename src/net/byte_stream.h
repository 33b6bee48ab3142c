#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/function_ref.h"

namespace motley::net {

// The address by which clients are limited: an IPv4 address, or the first 64 bits of an IPv6
// address, since a client commonly has all the rest.
std::string client_address(const boost::asio::ip::address& address);

// The other end of a stream.
struct Peer {
  // Of the socket, whether or not its other end is still there.
  enum class Kind : std::uint8_t { internet, unix_socket };

  Kind kind = Kind::internet;
  std::string name;    // for logs: "127.0.0.1:40000", or "unix:user:1000:pid:77"
  std::string client;  // by which it is limited: its client_address(), or "user:1000"
  std::optional<boost::asio::ip::address> address;  // on the internet
};

// Accepts streams of any kind.
using Acceptor = boost::asio::basic_socket_acceptor<boost::asio::generic::stream_protocol>;

// A connection as a stream of bytes, over TCP or a Unix socket. All is called on its executor, one
// call at a time; what waits ends with an error when the stream is cancelled or closed.
class ByteStream {
 public:
  using Failure = boost::system::error_code;
  using Socket = boost::asio::generic::stream_protocol::socket;
  template <class... Results>
  using Awaitable = boost::asio::awaitable<std::tuple<Failure, Results...>>;

  explicit ByteStream(Socket socket);

  boost::asio::any_io_executor executor() { return socket_.get_executor(); }
  const Peer& peer() const { return peer_; }

  // Whether there is something to read now: bytes, the end, or a failure.
  bool has_input();
  // Until there is something to read, which takes no buffer.
  Awaitable<> wait_readable();
  Awaitable<std::size_t> read_some(boost::asio::mutable_buffer into);
  // The same as a callback, which a signal can cancel.
  template <class Done>
  void start_reading(boost::asio::mutable_buffer into, Done done) {
    socket_.async_read_some(into, std::move(done));
  }
  // Calls back when the other end has closed or reset the connection.
  template <class Done>
  void start_waiting_for_reset(Done done) {
    socket_.async_wait(Socket::wait_error, std::move(done));
  }

  using Parts = std::array<std::string_view, 3>;
  // Writes all parts, in pieces. `goes_on` is asked before each.
  Awaitable<std::size_t> write(const Parts& parts, FunctionRef<bool()> goes_on);
  // Writes what the system takes at once.
  Failure write_now(std::string_view bytes);

  // Of all that was written, what the other end's system has; what is not known counts as not
  // taken.
  std::size_t bytes_taken();
  // Whether it has all.
  bool all_taken() { return unsent_bytes() == std::size_t{0}; }

  void cancel();
  void end_writing();
  // What the other end has not read is discarded, at once.
  void reset_when_closed() { resets_ = true; }
  void close();

 private:
  std::optional<std::size_t> unsent_bytes();

  Socket socket_;
  Peer peer_;
  std::size_t handed_over_ = 0;  // to the system
  bool resets_ = false;
};

// Of operations that return their failure.
inline constexpr auto no_throw = boost::asio::as_tuple(boost::asio::use_awaitable);

}  // namespace motley::net
