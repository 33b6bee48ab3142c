#include "net/byte_stream.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <utility>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>

#include "base/cat.h"

namespace motley::net {
namespace {

namespace asio = boost::asio;

constexpr std::size_t write_at_once_bytes = 64 << 10;
// The most unsent bytes that the system buffers for a client that does not read.
constexpr int max_unsent_bytes = 256 << 10;

Peer peer_on_internet(ByteStream::Socket& socket) {
  ByteStream::Failure failure;
  const auto other = socket.remote_endpoint(failure);
  asio::ip::tcp::endpoint end;
  if (!failure) std::memcpy(end.data(), other.data(), std::min(other.size(), end.capacity()));
  return {.kind = Peer::Kind::internet,
          .name = cat(end.address().to_string(), ":", end.port()),
          .client = client_address(end.address()),
          .address = end.address()};
}

Peer peer_on_unix_socket(int socket) {
  Peer peer{.kind = Peer::Kind::unix_socket,
            .name = "unix:user:unknown",
            .client = "user:unknown",
            .address = std::nullopt};
  ucred sender{};
  socklen_t size = sizeof sender;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &sender, &size) != 0) return peer;
  peer.name = cat("unix:user:", sender.uid, ":pid:", sender.pid);
  peer.client = cat("user:", sender.uid);
  return peer;
}

Peer peer_of(ByteStream::Socket& socket) {
  int family = AF_INET;
  socklen_t size = sizeof family;
  std::ignore = ::getsockopt(socket.native_handle(), SOL_SOCKET, SO_DOMAIN, &family, &size);
  return family == AF_UNIX ? peer_on_unix_socket(socket.native_handle()) : peer_on_internet(socket);
}

}  // namespace

std::string client_address(const asio::ip::address& address) {
  if (address.is_v4()) return address.to_string();
  const asio::ip::address_v6 whole = address.to_v6();
  if (whole.is_v4_mapped())
    return asio::ip::make_address_v4(asio::ip::v4_mapped, whole).to_string();
  asio::ip::address_v6::bytes_type bytes = whole.to_bytes();
  std::fill(bytes.begin() + 8, bytes.end(), static_cast<unsigned char>(0));
  return cat(asio::ip::address_v6(bytes).to_string(), "/64");
}

ByteStream::ByteStream(Socket socket) : socket_(std::move(socket)), peer_(peer_of(socket_)) {
  if (peer_.kind != Peer::Kind::internet) return;
  Failure ignored;
  std::ignore = socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  std::ignore = ::setsockopt(socket_.native_handle(), IPPROTO_TCP, TCP_NOTSENT_LOWAT,
                             &max_unsent_bytes, sizeof max_unsent_bytes);
}

bool ByteStream::has_input() {
  char byte = 0;
  return ::recv(socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 ||
         (errno != EAGAIN && errno != EINTR);
}

ByteStream::Awaitable<> ByteStream::wait_readable() {
  return socket_.async_wait(Socket::wait_read, no_throw);
}

ByteStream::Awaitable<std::size_t> ByteStream::read_some(asio::mutable_buffer into) {
  return socket_.async_read_some(asio::buffer(into), no_throw);
}

ByteStream::Awaitable<std::size_t> ByteStream::write(const Parts& parts,
                                                     FunctionRef<bool()> goes_on) {
  std::array<asio::const_buffer, 3> buffers;
  for (std::size_t i = 0; i < parts.size(); ++i)
    buffers[i] = asio::buffer(parts[i].data(), parts[i].size());
  const std::size_t before = handed_over_;
  const auto next = [this, before, goes_on](const Failure& failure, std::size_t bytes) {
    handed_over_ = before + bytes;
    return failure || !goes_on() ? std::size_t{0} : write_at_once_bytes;
  };
  auto [failure, bytes] = co_await asio::async_write(socket_, buffers, next, no_throw);
  if (!failure && bytes != asio::buffer_size(buffers)) failure = asio::error::operation_aborted;
  co_return std::tuple(failure, bytes);
}

ByteStream::Failure ByteStream::write_now(std::string_view bytes) {
  Failure failure;
  std::ignore = socket_.non_blocking(true, failure);
  handed_over_ += socket_.write_some(asio::buffer(bytes.data(), bytes.size()), failure);
  return failure == asio::error::would_block ? Failure() : failure;
}

std::optional<std::size_t> ByteStream::unsent_bytes() {
  int waiting = 0;
  if (::ioctl(socket_.native_handle(), SIOCOUTQ, &waiting) != 0 || waiting < 0) return std::nullopt;
  return static_cast<std::size_t>(waiting);
}

// Over a Unix socket, what the system has taken lies in the other end's queue.
std::size_t ByteStream::bytes_taken() {
  if (peer_.kind == Peer::Kind::unix_socket) return handed_over_;
  return handed_over_ - std::min(handed_over_, unsent_bytes().value_or(handed_over_));
}

// A closed socket has no operations, which is not an error.
void ByteStream::cancel() {
  Failure ignored;
  std::ignore = socket_.cancel(ignored);
}

void ByteStream::end_writing() {
  Failure ignored;
  std::ignore = socket_.shutdown(Socket::shutdown_send, ignored);
}

void ByteStream::close() {
  Failure ignored;
  if (resets_) std::ignore = socket_.set_option(Socket::linger(true, 0), ignored);
  std::ignore = socket_.close(ignored);
}

}  // namespace motley::net
