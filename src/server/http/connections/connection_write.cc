// How answers leave a connection.

#include <array>

#include <boost/asio/buffer.hpp>

#include "server/http/connections/connection.h"

namespace motley::server {

namespace asio = boost::asio;

asio::awaitable<void> Connection::write(net::ByteStream::Parts parts) {
  if (gone_) co_return;
  write_.running = true;
  write_.taken_at_mark = stream_.bytes_taken();
  deadline_.set(context_.limits.write_time);
  // cut() cancels nothing if one part has been written and the next not yet begun.
  const auto goes_on = [this] { return !gone_ && !deadline_.expired(); };
  const auto [failure, count] = co_await stream_.write(parts, goes_on);
  write_.running = false;
  deadline_.clear();
  write_.sent += count;
  if (failure) {
    if (deadline_.expired()) stream_.reset_when_closed();
    client_has_gone();
  } else if (watch_.ended) {
    probe_client();
  }
}

bool Connection::client_takes() {
  const std::size_t taken = stream_.bytes_taken();
  if (taken < write_.taken_at_mark + context_.limits.write_progress_bytes) return false;
  write_.taken_at_mark = taken;
  return true;
}

asio::awaitable<void> Connection::close_gently() {
  stream_.end_writing();
  phase_ = Phase::lingering;
  const HttpLimits& limits = context_.limits;
  deadline_.set(finishing_ ? limits.drain_linger_time : limits.linger_time);
  std::array<char, piece_bytes> unwanted{};
  std::size_t total = 0;
  while (!deadline_.expired() && total < linger_bytes) {
    const auto [failure, bytes] = co_await stream_.read_some(asio::buffer(unwanted));
    if (failure) break;
    total += bytes;
  }
  deadline_.clear();
}

}  // namespace motley::server
