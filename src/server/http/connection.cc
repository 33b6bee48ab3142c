#include "server/http/connection.h"

#include <array>
#include <tuple>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/buffers_to_string.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/status.hpp>

#include "base/cat.h"
#include "base/log.h"

namespace motley::server {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;

constexpr auto no_throw = asio::as_tuple(asio::use_awaitable);
constexpr std::size_t piece_bytes = 16 << 10;
constexpr auto linger_time = std::chrono::seconds(2);
constexpr std::size_t linger_bytes = 64 << 20;
constexpr auto deadline_retry = std::chrono::milliseconds(100);

std::string_view view(beast::string_view text) { return {text.data(), text.size()}; }

// What the client wrote is no HTTP, rather than that it went away.
bool is_malformed(const boost::system::error_code& failure) {
  return failure.category() == http::make_error_code(http::error::bad_method).category() &&
         failure != http::error::end_of_stream && failure != http::error::partial_message;
}

std::string describe_peer(const Connection::Socket& socket) {
  boost::system::error_code failure;
  const auto end = socket.remote_endpoint(failure);
  return failure ? "unknown" : cat(end.address().to_string(), ":", end.port());
}

double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

Error malformed(std::string_view what) {
  return {ErrorCode::invalid_argument, cat("not a request that HTTP/1.1 allows: ", what), "",
          "send a well-formed request"};
}

}  // namespace

Connection::Connection(Socket socket, const ConnectionContext& context)
    : socket_(std::move(socket)),
      context_(context),
      peer_(describe_peer(socket_)),
      buffer_(context.limits.header_bytes + context.limits.pipelined_bytes + piece_bytes),
      watch_ended_(socket_.get_executor()),
      timer_(socket_.get_executor()) {}

Connection::~Connection() = default;

asio::any_io_executor Connection::executor() { return socket_.get_executor(); }

asio::awaitable<void> Connection::run() {
  const auto self = shared_from_this();
  while (!gone_) {
    auto request = co_await read_request();
    if (!request) break;
    if (request->ok()) {
      co_await answer(**std::move(request));
    } else {
      co_await refuse(request->error());
    }
    request_.reset();
    body_share_ = {};
    served_ = true;
    if (!keep_alive_ || finishing_) break;
  }
  if (!gone_) co_await close_gently();
  boost::system::error_code ignored;
  std::ignore = socket_.close(ignored);
  clear_deadline();
  timer_.cancel();
}

void Connection::finish() {
  asio::post(socket_.get_executor(), [self = shared_from_this()] {
    self->finishing_ = true;
    if (self->idle_) self->socket_.cancel();
  });
}

void Connection::abort() {
  asio::post(socket_.get_executor(), [self = shared_from_this()] {
    self->finishing_ = true;
    self->client_has_gone();
    boost::system::error_code ignored;
    std::ignore = self->socket_.close(ignored);
  });
}

asio::awaitable<bool> Connection::wait_for_request() {
  if (buffer_.size() > 0) co_return true;
  if (finishing_ && served_) co_return false;
  idle_ = true;
  set_deadline(served_ ? context_.limits.idle_time : context_.limits.request_time);
  const auto [failure, bytes] =
      co_await socket_.async_read_some(buffer_.prepare(piece_bytes), no_throw);
  clear_deadline();
  idle_ = false;
  if (failure) co_return false;
  buffer_.commit(bytes);
  co_return true;
}

asio::awaitable<std::optional<Result<HttpRequest>>> Connection::read_request() {
  keep_alive_ = false;
  http_1_0_ = false;
  head_only_ = false;
  headers_.clear();
  status_ = 0;
  complete_ = false;
  sent_bytes_ = 0;
  if (!co_await wait_for_request()) co_return std::nullopt;

  Parser parser;
  parser.header_limit(static_cast<std::uint32_t>(context_.limits.header_bytes));
  parser.body_limit(boost::none);  // counted by read_body(), which knows what all take together
  expired_ = false;
  set_deadline(context_.limits.request_time);
  const auto [failure, bytes] =
      co_await http::async_read_header(socket_, buffer_, parser, no_throw);
  if (failure && !expired_ && !is_malformed(failure)) {
    clear_deadline();
    co_return std::nullopt;
  }
  if (failure) co_return reading_failed(parser, failure);
  if (auto wrong = check_head(parser)) co_return *std::move(wrong);

  HttpRequest request;
  if (auto wrong = co_await read_body(parser, request.body)) {
    clear_deadline();
    if (wrong->code() == ErrorCode::cancelled) co_return std::nullopt;
    co_return *std::move(wrong);
  }
  clear_deadline();
  const auto& message = parser.get();
  request.method = std::string(view(message.method_string()));
  const std::string_view target = view(message.target());
  request.path = std::string(target.substr(0, target.find('?')));
  request.authorization = std::string(view(message[http::field::authorization]));
  request.content_encoding = std::string(view(message[http::field::content_encoding]));
  request.origin = std::string(view(message[http::field::origin]));
  const std::string_view id = view(message["X-Request-Id"]);
  request.id = is_request_id(id) ? std::string(id) : new_request_id();
  request.peer = peer_;
  http_1_0_ = message.version() < 11;
  keep_alive_ = parser.keep_alive();
  head_only_ = message.method() == http::verb::head;
  co_return request;
}

std::optional<Error> Connection::check_head(const Parser& parser) const {
  const auto& message = parser.get();
  if (message.version() != 10 && message.version() != 11) return malformed("another version");
  if (message.version() == 11 && message.count(http::field::host) != 1)
    return malformed("exactly one Host is needed");
  if (message.count(http::field::transfer_encoding) > 0 && !parser.chunked())
    return malformed("a Transfer-Encoding other than chunked");
  const auto length = parser.content_length();
  if (length && *length > context_.limits.body_bytes)
    return Error(ErrorCode::too_long, cat("a body of ", *length, " bytes"), "",
                 cat("send at most ", context_.limits.body_bytes));
  return std::nullopt;
}

// Whether the line with the target has come to its end, of a head that has not.
bool Connection::first_line_has_come(const Parser& parser) const {
  // The parser takes lines when it has seen some of them; before, they are in the buffer.
  if (!parser.get().target().empty()) return true;
  const auto bytes = buffer_.data();
  const std::string_view come(static_cast<const char*>(bytes.data()), bytes.size());
  return come.substr(0, context_.limits.header_bytes).find('\n') != std::string_view::npos;
}

Error Connection::reading_failed(const Parser& parser, ErrorCodeOfBoost failure) const {
  if (expired_)
    return {ErrorCode::timed_out, "the request took too long to come", "",
            "send it faster, or raise --client-timeout"};
  const bool too_long =
      failure == http::error::header_limit || failure == http::error::buffer_overflow;
  if (too_long && !first_line_has_come(parser))
    return {ErrorCode::too_long,
            cat("a target of more than ", context_.limits.header_bytes, " bytes"),
            std::string(target_place), "send what is long in the body"};
  if (too_long)
    return {ErrorCode::too_long,
            cat("a head of more than ", context_.limits.header_bytes, " bytes"), "",
            "send shorter header fields"};
  return malformed(failure.message());
}

asio::awaitable<std::optional<Error>> Connection::read_body(Parser& parser, std::string& body) {
  body_share_ = BodyBudget::Share(*context_.bodies);
  if (!parser.is_done() && view(parser.get()[http::field::expect]) == "100-continue") {
    co_await write_bytes("HTTP/1.1 100 Continue\r\n\r\n");
    set_deadline(context_.limits.request_time);
  }
  std::array<char, piece_bytes> piece{};
  while (!parser.is_done()) {
    parser.get().body() = {.data = piece.data(), .size = piece.size(), .more = true};
    const auto [failure, bytes] = co_await http::async_read(socket_, buffer_, parser, no_throw);
    if (failure && failure != http::error::need_buffer) {
      if (expired_ || is_malformed(failure)) co_return reading_failed(parser, failure);
      co_return Error(ErrorCode::cancelled, "the client went away");
    }
    const std::size_t got = piece.size() - parser.get().body().size;
    if (body.size() + got > context_.limits.body_bytes)
      co_return Error(ErrorCode::too_long,
                      cat("a body of more than ", context_.limits.body_bytes, " bytes"), "",
                      "send a shorter one");
    if (!body_share_.grow(got))
      co_return Error(ErrorCode::busy, "too many bytes of requests at once", "",
                      "try again in a moment");
    body.append(piece.data(), got);
  }
  co_return std::nullopt;
}

asio::awaitable<void> Connection::answer(HttpRequest request) {
  const auto start = std::chrono::steady_clock::now();
  request_ = std::move(request);
  watch();
  co_await context_.handler(*this);
  co_await stop_watching();
  gone_notice_ = nullptr;
  MOTLEY_CHECK(complete_ || gone_, "a handler that leaves its request unanswered");
  log::info("http.request", {{"id", request_->id},
                             {"peer", peer_},
                             {"method", printable(request_->method)},
                             {"path", printable(request_->path.substr(0, 200))},
                             {"status", status_ == 0 ? 499 : status_},
                             {"gone", gone_},
                             {"received", request_->body.size()},
                             {"sent", sent_bytes_},
                             {"ms", milliseconds_since(start)}});
}

// The rest of the request was not read, so nothing that follows can be understood.
asio::awaitable<void> Connection::refuse(const Error& error) {
  keep_alive_ = false;
  clear_deadline();
  request_ = HttpRequest{.id = new_request_id(), .peer = peer_};
  co_await send(context_.refuse(error));
  log::info(
      "http.refused",
      {{"id", request_->id}, {"peer", peer_}, {"status", status_}, {"why", name(error.code())}});
}

void Connection::watch() {
  if (gone_ || watch_no_more_ || buffer_.size() >= context_.limits.pipelined_bytes) return;
  watching_ = true;
  const auto taken = [self = shared_from_this()](ErrorCodeOfBoost failure, std::size_t bytes) {
    self->watching_ = false;
    self->buffer_.commit(bytes);
    if (!failure) self->watch();
    if (failure && failure != asio::error::operation_aborted) self->client_has_gone();
    self->watch_ended_.cancel();
  };
  socket_.async_read_some(buffer_.prepare(piece_bytes),
                          asio::bind_cancellation_slot(stop_watch_.slot(), taken));
}

asio::awaitable<void> Connection::stop_watching() {
  watch_no_more_ = true;
  stop_watch_.emit(asio::cancellation_type::all);
  while (watching_) {
    watch_ended_.expires_at(asio::steady_timer::time_point::max());
    co_await watch_ended_.async_wait(no_throw);
  }
  watch_no_more_ = false;
}

void Connection::client_has_gone() {
  if (std::exchange(gone_, true)) return;
  if (gone_notice_) gone_notice_();
}

asio::awaitable<void> Connection::write_bytes(std::string_view bytes) {
  if (gone_) co_return;
  set_deadline(context_.limits.write_time);
  const auto [failure, count] =
      co_await asio::async_write(socket_, asio::buffer(bytes.data(), bytes.size()), no_throw);
  clear_deadline();
  sent_bytes_ += count;
  if (failure) client_has_gone();
}

std::string Connection::head_of(const HttpResponse& response,
                                std::optional<std::size_t> body_bytes) const {
  const auto reason =
      http::obsolete_reason(http::int_to_status(static_cast<unsigned>(response.status)));
  std::string head = cat("HTTP/1.1 ", response.status, " ", view(reason), "\r\n");
  if (!response.content_type.empty()) head += cat("Content-Type: ", response.content_type, "\r\n");
  if (body_bytes) {
    head += cat("Content-Length: ", *body_bytes, "\r\n");
  } else if (!http_1_0_) {
    head += "Transfer-Encoding: chunked\r\n";
  }
  head += keep_alive_ && !finishing_ ? "Connection: keep-alive\r\n" : "Connection: close\r\n";
  head += cat("X-Request-Id: ", request_->id, "\r\n");
  for (const auto* const list : {&headers_, &response.headers})
    for (const auto& [name, value] : *list) head += cat(name, ": ", value, "\r\n");
  return head + "\r\n";
}

asio::awaitable<void> Connection::send(HttpResponse response) {
  MOTLEY_CHECK(status_ == 0, "two answers to one request");
  status_ = response.status;
  complete_ = true;
  std::string bytes = head_of(response, response.body.size());
  if (!head_only_) bytes += response.body;
  co_await write_bytes(bytes);
}

asio::awaitable<void> Connection::begin_stream(HttpResponse head) {
  MOTLEY_CHECK(status_ == 0, "two answers to one request");
  status_ = head.status;
  // Without chunks only the end of the connection tells the end of the body.
  if (http_1_0_) keep_alive_ = false;
  co_await write_bytes(head_of(head, std::nullopt));
  if (!head.body.empty()) co_await write(std::move(head.body));
}

asio::awaitable<void> Connection::write(std::string piece) {
  constexpr std::string_view hex = "0123456789abcdef";
  if (piece.empty()) co_return;
  if (!http_1_0_) {
    std::string size;
    for (std::size_t rest = piece.size(); rest > 0; rest >>= 4) size.insert(0, 1, hex[rest & 15]);
    piece = cat(size, "\r\n", piece, "\r\n");
  }
  co_await write_bytes(piece);
}

asio::awaitable<void> Connection::end_stream() {
  complete_ = true;
  if (!http_1_0_) co_await write_bytes("0\r\n\r\n");
}

asio::awaitable<void> Connection::close_gently() {
  boost::system::error_code failure;
  std::ignore = socket_.shutdown(Socket::shutdown_send, failure);
  set_deadline(linger_time);
  expired_ = false;
  std::array<char, piece_bytes> unwanted{};
  std::size_t total = 0;
  while (!failure && !expired_ && total < linger_bytes) {
    const auto [end, bytes] = co_await socket_.async_read_some(asio::buffer(unwanted), no_throw);
    failure = end;
    total += bytes;
  }
  clear_deadline();
}

void Connection::set_deadline(std::chrono::nanoseconds after) {
  deadline_ = std::chrono::steady_clock::now() + after;
  // One timer for all deadlines: where it runs out too early it looks for the next.
  if (!armed_ || *deadline_ < timer_.expiry()) arm();
}

void Connection::arm() {
  armed_ = true;
  timer_.expires_at(*deadline_);
  timer_.async_wait([self = shared_from_this()](ErrorCodeOfBoost failure) {
    if (failure) return;
    self->armed_ = false;
    if (!self->deadline_) return;
    if (std::chrono::steady_clock::now() < *self->deadline_) return self->arm();
    self->expired_ = true;
    self->socket_.cancel();
    // An operation may just have ended and the next not yet begun: until somebody notices.
    self->set_deadline(deadline_retry);
  });
}

}  // namespace motley::server
