// How answers leave a connection.

#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/status.hpp>

#include "base/cat.h"
#include "base/log.h"
#include "server/http/connection.h"
#include "server/http/connection_constants.h"

namespace motley::server {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

constexpr auto linger_time = std::chrono::seconds(2);

std::string_view view(boost::beast::string_view text) { return {text.data(), text.size()}; }

}  // namespace

asio::awaitable<void> Connection::write_bytes(std::array<std::string_view, 3> parts) {
  if (gone_) co_return;
  writing_ = true;
  taken_at_mark_ = stream_.bytes_taken();
  set_deadline(context_.limits.write_time);
  // cut() cancels nothing if one part has been written and the next not yet begun.
  const auto goes_on = [this] { return !gone_ && !expired_; };
  const auto [failure, count] = co_await stream_.write(parts, goes_on);
  writing_ = false;
  clear_deadline();
  sent_bytes_ += count;
  if (failure) {
    if (expired_) stream_.reset_when_closed();
    client_has_gone();
  } else if (ended_) {
    probe_client();
  }
}

bool Connection::client_takes() {
  const std::size_t taken = stream_.bytes_taken();
  if (taken < taken_at_mark_ + context_.limits.write_progress_bytes) return false;
  taken_at_mark_ = taken;
  return true;
}

std::string Connection::head_of(const HttpResponse& response,
                                std::optional<std::size_t> body_bytes) const {
  const auto reason =
      http::obsolete_reason(http::int_to_status(static_cast<unsigned>(response.status)));
  std::string head = cat("HTTP/1.1 ", response.status, " ", view(reason), "\r\n");
  if (!response.content_type.empty()) head += cat("Content-Type: ", response.content_type, "\r\n");
  if (response.status == 204) {
    // Such an answer never has a body, so there is no header about one.
  } else if (body_bytes) {
    head += cat("Content-Length: ", *body_bytes, "\r\n");
  } else if (!http_1_0_) {
    head += "Transfer-Encoding: chunked\r\n";
  }
  head += keep_alive_ && !finishing_ ? "Connection: keep-alive\r\n" : "Connection: close\r\n";
  // Anthropic's clients read the second.
  head += cat("X-Request-Id: ", request_->id, "\r\nRequest-Id: ", request_->id, "\r\n");
  for (const auto* const list : {&headers_, &response.headers})
    for (const auto& [name, value] : *list) head += cat(name, ": ", value, "\r\n");
  return head + "\r\n";
}

asio::awaitable<void> Connection::send(HttpResponse response) {
  MOTLEY_CHECK(status_ == 0, "two answers to one request");
  status_ = response.status;
  complete_ = true;
  log_error(response);
  const std::string head = head_of(response, response.body.size());
  co_await write_bytes({head, head_only_ ? std::string_view() : response.body, ""});
}

asio::awaitable<void> Connection::send_pieces(HttpResponse head, PieceSource next) {
  std::string piece = next();
  while (!piece.empty() && head.body.size() + piece.size() <= context_.limits.whole_answer_bytes) {
    head.body += piece;
    piece = next();
  }
  if (piece.empty()) {
    co_await send(std::move(head));
    co_return;
  }
  co_await begin_stream(std::move(head));
  for (; !piece.empty() && !gone_; piece = next()) co_await write(std::move(piece));
  co_await end_stream();
}

asio::awaitable<void> Connection::begin_stream(HttpResponse head) {
  MOTLEY_CHECK(status_ == 0, "two answers to one request");
  status_ = head.status;
  // Without chunks, only the end of the connection marks the end of the body.
  if (http_1_0_) keep_alive_ = false;
  streams_events_ = !head_only_ && head.content_type.starts_with("text/event-stream");
  const std::string bytes = head_of(head, std::nullopt);
  co_await write_bytes({bytes, "", ""});
  co_await write(std::move(head.body));
}

asio::awaitable<void> Connection::write(std::string piece) {
  constexpr std::string_view hex = "0123456789abcdef";
  if (piece.empty() || head_only_) co_return;
  if (http_1_0_) {
    co_await write_bytes({piece, "", ""});
    co_return;
  }
  std::string size;
  for (std::size_t rest = piece.size(); rest > 0; rest >>= 4) size.insert(0, 1, hex[rest & 15]);
  size += "\r\n";
  co_await write_bytes({size, piece, "\r\n"});
}

asio::awaitable<void> Connection::end_stream() {
  complete_ = true;
  if (!http_1_0_ && !head_only_) co_await write_bytes({"0\r\n\r\n", "", ""});
}

void Connection::cut(std::string_view why) {
  if (gone_) return;
  log::warning("http.cut", {{"id", request_->id}, {"peer", stream_.peer().name}, {"why", why}});
  stream_.reset_when_closed();
  client_has_gone();
  stream_.cancel();
}

asio::awaitable<void> Connection::close_gently() {
  stream_.end_writing();
  lingering_ = true;
  set_deadline(finishing_ ? drain_linger_time : std::chrono::milliseconds(linger_time));
  std::array<char, piece_bytes> unwanted{};
  std::size_t total = 0;
  while (!expired_ && total < linger_bytes) {
    const auto [failure, bytes] = co_await stream_.read_some(asio::buffer(unwanted));
    if (failure) break;
    total += bytes;
  }
  clear_deadline();
}

}  // namespace motley::server
