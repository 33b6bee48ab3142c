#include "server/http/connection.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <tuple>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/status.hpp>

#include "base/cat.h"
#include "base/log.h"
#include "server/http/chunk_decoder.h"
#include "server/http/client_address.h"
#include "server/http/connection_table.h"
#include "server/http/head_scanner.h"

namespace motley::server {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

constexpr auto no_throw = asio::as_tuple(asio::use_awaitable);
constexpr std::size_t piece_bytes = 16 << 10;
constexpr std::size_t first_body_bytes = 64 << 10;
constexpr std::size_t write_at_once_bytes = 64 << 10;
constexpr auto linger_time = std::chrono::seconds(2);
constexpr auto drain_linger_time = std::chrono::milliseconds(500);
constexpr std::size_t linger_bytes = 64 << 20;
constexpr auto deadline_retry = std::chrono::milliseconds(100);
// The most unsent bytes that the system buffers for a client.
constexpr int unsent_bytes = 256 << 10;

// Used when there is no memory to build it.
constexpr std::string_view out_of_memory_body =
    R"({"error":{"message":"out of memory: try again in a moment, or ask for less at once",)"
    R"("type":"server_error","param":null,"code":"out_of_memory"}})";
constexpr std::string_view out_of_memory_head =
    "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: "
    "143\r\nRetry-After: 1\r\nConnection: close\r\n\r\n";
static_assert(out_of_memory_body.size() == 143);

std::string_view view(boost::beast::string_view text) { return {text.data(), text.size()}; }

asio::ip::tcp::endpoint endpoint_of(const Connection::Socket& socket) {
  boost::system::error_code failure;
  const auto end = socket.remote_endpoint(failure);
  return failure ? asio::ip::tcp::endpoint() : end;
}

double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

Error head_too_long(const HeadScanner& scanner, std::size_t limit) {
  if (!scanner.first_line_complete())
    return {ErrorCode::too_long, cat("a target of more than ", limit, " bytes"),
            std::string(target_place), "send what is long in the body"};
  return {ErrorCode::too_long, cat("a head of more than ", limit, " bytes"), "",
          "send shorter header fields"};
}

Error body_too_long(std::string_view bytes, std::size_t limit) {
  return {ErrorCode::too_long, cat("a body of ", bytes, " bytes"), "",
          limit == 0 ? "send none" : cat("send at most ", limit)};
}

}  // namespace

Connection::Connection(Socket socket, const ConnectionContext& context)
    : socket_(std::move(socket)),
      context_(context),
      buffer_(context.limits.header_bytes + context.limits.pipelined_bytes + piece_bytes),
      watch_ended_(socket_.get_executor()),
      timer_(socket_.get_executor()) {
  const auto end = endpoint_of(socket_);
  peer_ = cat(end.address().to_string(), ":", end.port());
  address_ = client_address(end.address());
  // Limits what the system buffers for a client that does not read.
  std::ignore = ::setsockopt(socket_.native_handle(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent_bytes,
                             sizeof unsent_bytes);
}

Connection::~Connection() = default;

asio::any_io_executor Connection::executor() { return socket_.get_executor(); }

void Connection::drop_body() {
  std::string().swap(request_->body);
  body_share_ = {};
}

asio::awaitable<void> Connection::run() {
  const auto self = shared_from_this();
  while (!gone_) {
    const Incoming incoming = co_await read_request();
    if (incoming == Incoming::none) break;
    if (incoming == Incoming::whole)
      co_await answer();
    else
      co_await refuse();
    request_.reset();
    refusal_.reset();
    body_share_ = {};
    served_ = true;
    if (!keep_alive_ || finishing_) break;
  }
  if (!gone_) co_await close_gently();
  boost::system::error_code ignored;
  if (reset_) std::ignore = socket_.set_option(Socket::linger(true, 0), ignored);
  std::ignore = socket_.close(ignored);
  clear_deadline();
  timer_.cancel();
}

void Connection::finish() {
  asio::post(socket_.get_executor(), [self = shared_from_this()] {
    self->finishing_ = true;
    if (self->idle_) self->cancel_operations();
    if (self->reading_) self->hasten_deadline(self->context_.limits.drain_request_time);
    if (self->lingering_) self->hasten_deadline(drain_linger_time);
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

// Never waits: what the socket does not take now is lost, and so is what the client has sent.
void Connection::turn_away(std::string_view why) {
  request_.emplace().id = new_request_id();
  const Error error(ErrorCode::unavailable, std::string(why), "",
                    "try again in a moment, or keep fewer open");
  const HttpResponse response = context_.hooks.refuse(error, *request_);
  const std::string head = head_of(response, response.body.size());
  const std::array<asio::const_buffer, 2> parts = {asio::buffer(head), asio::buffer(response.body)};
  boost::system::error_code ignored;
  std::ignore = socket_.non_blocking(true, ignored);
  std::ignore = socket_.write_some(parts, ignored);
  // Closing with unread bytes would reset the connection, and the client would not see the answer.
  std::array<char, piece_bytes> unwanted{};
  std::ignore = socket_.read_some(asio::buffer(unwanted), ignored);
  std::ignore = socket_.shutdown(Socket::shutdown_send, ignored);
  std::ignore = socket_.close(ignored);
}

// The operations that waited for the handler have ended with it.
void Connection::end_without_memory() {
  gone_notice_ = nullptr;
  boost::system::error_code ignored;
  if (status_ == 0 && request_) {
    std::ignore = socket_.non_blocking(true, ignored);
    const std::array<asio::const_buffer, 2> parts = {
        asio::buffer(out_of_memory_head.data(), out_of_memory_head.size()),
        asio::buffer(out_of_memory_body.data(), out_of_memory_body.size())};
    std::ignore = socket_.write_some(parts, ignored);
  }
  gone_ = true;
  std::ignore = socket_.close(ignored);
  clear_deadline();
  timer_.cancel();
}

asio::awaitable<bool> Connection::wait_for_request() {
  if (buffer_.size() > 0) co_return true;
  if (finishing_ && served_) co_return false;
  // An idle connection holds no buffer.
  buffer_.shrink_to_fit();
  idle_ = true;
  set_deadline(served_ ? context_.limits.idle_time : context_.limits.request_time);
  if (finishing_) hasten_deadline(context_.limits.drain_request_time);
  const auto [failure] = co_await socket_.async_wait(Socket::wait_read, no_throw);
  const bool come = !failure && !co_await read_more();
  clear_deadline();
  idle_ = false;
  if (!come) co_return false;
  if (!std::exchange(heard_, true)) context_.table->heard(*this);
  co_return true;
}

asio::awaitable<Connection::Incoming> Connection::read_request() {
  keep_alive_ = false;
  http_1_0_ = false;
  head_only_ = false;
  headers_.clear();
  quiet_ = false;
  status_ = 0;
  complete_ = false;
  sent_bytes_ = 0;
  received_bytes_ = 0;
  if (!co_await wait_for_request()) co_return Incoming::none;

  expired_ = false;
  reading_ = true;
  set_deadline(context_.limits.request_time);
  if (finishing_) hasten_deadline(context_.limits.drain_request_time);
  const std::optional<Error> wrong = co_await read_parts();
  reading_ = false;
  clear_deadline();
  if (wrong && wrong->code() == ErrorCode::cancelled) co_return Incoming::none;
  if (wrong) {
    // The rest of the request was not read, so later requests cannot be parsed.
    keep_alive_ = false;
    if (!request_) request_.emplace().id = new_request_id();
    refusal_ = context_.hooks.refuse(*wrong, *request_);
  }
  co_return refusal_ ? Incoming::refused : Incoming::whole;
}

// Returns an error that the connection itself has detected.
asio::awaitable<std::optional<Error>> Connection::read_parts() {
  Result<RequestHead> head = co_await read_head();
  if (!head.ok()) co_return std::move(head).error();
  http_1_0_ = head->http_1_0;
  keep_alive_ = head->keep_alive;
  head_only_ = head->head.method == "HEAD";
  request_.emplace();
  static_cast<HttpHead&>(*request_) = std::move(head->head);
  request_->peer = peer_;
  request_->address = address_;

  HeadVerdict verdict = context_.hooks.admit(*request_);
  if (verdict.refusal) {
    keep_alive_ = keep_alive_ && !head->has_body();
    refusal_ = std::move(verdict.refusal);
    co_return std::nullopt;
  }
  body_share_ = BodyBudget::Share(*context_.bodies, address_, verdict.authorized);
  request_->max_body_bytes = std::min(verdict.max_body_bytes, context_.limits.body_bytes);
  co_return co_await read_body(*head, request_->max_body_bytes);
}

std::string_view Connection::buffered() const {
  const auto bytes = buffer_.data();
  return {static_cast<const char*>(bytes.data()), bytes.size()};
}

asio::awaitable<std::optional<Error>> Connection::read_more() {
  const auto [failure, bytes] =
      co_await socket_.async_read_some(buffer_.prepare(piece_bytes), no_throw);
  buffer_.commit(bytes);
  if (!failure) co_return std::nullopt;
  if (!expired_) co_return Error(ErrorCode::cancelled, "the client went away");
  if (finishing_)
    co_return Error(ErrorCode::unavailable, "the server is shutting down", "", "ask another");
  co_return Error(ErrorCode::timed_out, "the request took too long to come", "",
                  "send it faster, or raise --client-timeout");
}

asio::awaitable<Result<RequestHead>> Connection::read_head() {
  const std::size_t limit = context_.limits.header_bytes;
  HeadScanner scanner;
  while (true) {
    const std::string_view come = buffered().substr(0, limit);
    const HeadScanner::State state = scanner.scan(come);
    if (state == HeadScanner::State::malformed) co_return malformed_request(scanner.reason());
    if (state == HeadScanner::State::complete) {
      Result<RequestHead> head = parse_head(come.substr(0, scanner.bytes()));
      buffer_.consume(scanner.bytes());
      co_return head;
    }
    if (come.size() == limit) co_return head_too_long(scanner, limit);
    if (auto wrong = co_await read_more()) co_return *std::move(wrong);
  }
}

asio::awaitable<std::optional<Error>> Connection::read_body(const RequestHead& head,
                                                            std::size_t max_bytes) {
  if (head.content_length > max_bytes) co_return body_too_long(cat(head.content_length), max_bytes);
  if (head.expects_continue && head.has_body() && buffer_.size() == 0) {
    const auto until = deadline_;
    co_await write_bytes({"HTTP/1.1 100 Continue\r\n\r\n", "", ""});
    if (gone_) co_return Error(ErrorCode::cancelled, "the client went away");
    if (until) set_deadline(*until - std::chrono::steady_clock::now());
    if (finishing_) hasten_deadline(context_.limits.drain_request_time);
    sent_bytes_ = 0;
  }
  if (head.chunked) co_return co_await read_chunked_body(max_bytes);
  co_return co_await read_plain_body(static_cast<std::size_t>(head.content_length));
}

asio::awaitable<std::optional<Error>> Connection::read_plain_body(std::size_t bytes) {
  while (request_->body.size() < bytes) {
    if (buffer_.size() == 0)
      if (auto wrong = co_await read_more()) co_return wrong;
    const std::string_view come = buffered().substr(0, bytes - request_->body.size());
    if (auto wrong = append_to_body(come, bytes)) co_return wrong;
    buffer_.consume(come.size());
  }
  co_return std::nullopt;
}

asio::awaitable<std::optional<Error>> Connection::read_chunked_body(std::size_t max_bytes) {
  ChunkDecoder decoder(context_.limits.chunk_extra_bytes);
  while (!decoder.done()) {
    if (buffer_.size() == 0)
      if (auto wrong = co_await read_more()) co_return wrong;
    const Result<ChunkDecoder::Step> step = decoder.take(buffered());
    if (!step.ok()) co_return step.error();
    if (step->content.size() > max_bytes - request_->body.size())
      co_return body_too_long(cat("more than ", max_bytes), max_bytes);
    if (auto wrong = append_to_body(step->content, max_bytes)) co_return wrong;
    buffer_.consume(step->used);
  }
  co_return std::nullopt;
}

// The budget counts the memory allocated for the body, which grows as data arrives: what a client
// announces costs nothing.
std::optional<Error> Connection::append_to_body(std::string_view content, std::size_t max_bytes) {
  std::string& body = request_->body;
  const std::size_t needed = body.size() + content.size();
  if (needed > body_share_.bytes()) {
    const std::size_t capacity =
        std::min(std::max({needed, 2 * body_share_.bytes(), first_body_bytes}), max_bytes);
    if (Result<void> taken = take_for_body(capacity); !taken.ok()) return taken.error();
    std::string larger;  // reserve() of a non-empty string would allocate more than requested
    larger.reserve(capacity);
    larger.append(body);
    body.swap(larger);
  }
  body.append(content);
  received_bytes_ = body.size();
  return std::nullopt;
}

Result<void> Connection::take_for_body(std::size_t bytes) {
  switch (body_share_.grow_to(bytes)) {
    case BodyBudget::Refusal::none:
      break;
    case BodyBudget::Refusal::all:
      return Error(ErrorCode::busy,
                   cat("the bodies of all requests may hold ", context_.limits.all_bodies_bytes,
                       " bytes together, and there is no room for another"),
                   "", "try again in a moment");
    case BodyBudget::Refusal::address:
      return Error(
          ErrorCode::busy,
          cat("the bodies of requests from ", address_, " may hold ",
              body_share_.max_address_bytes(), " bytes together until they are read, and they do"),
          "", "send fewer at once, or try again in a moment");
  }
  return {};
}

asio::awaitable<void> Connection::answer() {
  const auto start = std::chrono::steady_clock::now();
  watch();
  co_await context_.hooks.handler(*this);
  co_await stop_watching();
  gone_notice_ = nullptr;
  MOTLEY_CHECK(complete_ || gone_, "a handler that leaves its request unanswered");
  log_answer("http.request", start);
}

asio::awaitable<void> Connection::refuse() {
  const auto start = std::chrono::steady_clock::now();
  co_await send(*std::move(refusal_));
  log_answer("http.refused", start);
}

void Connection::log_answer(std::string_view event,
                            std::chrono::steady_clock::time_point start) const {
  const bool well = status_ == 200 && !gone_;
  log::write(quiet_ && well ? log::Level::debug : log::Level::info, event,
             {{"id", request_->id},
              {"peer", peer_},
              {"method", printable(request_->method)},
              {"path", printable(request_->path.substr(0, 200))},
              {"status", status_ == 0 ? 499 : status_},
              {"gone", gone_},
              {"received", received_bytes_},
              {"sent", sent_bytes_},
              {"ms", milliseconds_since(start)}});
}

void Connection::watch() {
  if (gone_ || watch_no_more_ || buffer_.size() >= context_.limits.pipelined_bytes) return;
  watching_ = true;
  const auto taken = [self = shared_from_this()](ErrorCodeOfBoost failure, std::size_t bytes) {
    self->watching_ = false;
    self->buffer_.commit(bytes);
    self->watch_ended_.cancel();
    if (!failure) self->watch();
    if (failure && failure != asio::error::operation_aborted) self->client_has_gone();
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

// A closed socket has none, which is not an error.
void Connection::cancel_operations() {
  boost::system::error_code ignored;
  std::ignore = socket_.cancel(ignored);
}

void Connection::client_has_gone() {
  if (std::exchange(gone_, true)) return;
  if (gone_notice_) gone_notice_();
}

asio::awaitable<void> Connection::write_bytes(std::array<std::string_view, 3> parts) {
  if (gone_) co_return;
  std::array<asio::const_buffer, 3> buffers;
  for (std::size_t i = 0; i < parts.size(); ++i)
    buffers[i] = asio::buffer(parts[i].data(), parts[i].size());
  expired_ = false;
  writing_ = true;
  taken_at_mark_ = bytes_taken();
  set_deadline(context_.limits.write_time);
  const std::size_t before = handed_over_;
  const auto go_on = [this, before](const ErrorCodeOfBoost& failure, std::size_t bytes) {
    handed_over_ = before + bytes;
    // cut() cancels nothing if one part has been written and the next not yet begun.
    return failure || gone_ ? std::size_t{0} : write_at_once_bytes;
  };
  const auto [failure, count] = co_await asio::async_write(socket_, buffers, go_on, no_throw);
  writing_ = false;
  clear_deadline();
  sent_bytes_ += count;
  if (!failure) co_return;
  reset_ |= expired_;
  client_has_gone();
}

// The bytes that the client's side has acknowledged, of all that were given to the system.
std::size_t Connection::bytes_taken() {
  int waiting = 0;
  const bool known = ::ioctl(socket_.native_handle(), SIOCOUTQ, &waiting) == 0 && waiting >= 0;
  return known ? handed_over_ - std::min(handed_over_, static_cast<std::size_t>(waiting)) : 0;
}

bool Connection::client_takes() {
  const std::size_t taken = bytes_taken();
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
  log::warning("http.cut", {{"id", request_->id}, {"peer", peer_}, {"why", why}});
  reset_ = true;
  client_has_gone();
  cancel_operations();
}

asio::awaitable<void> Connection::close_gently() {
  boost::system::error_code failure;
  std::ignore = socket_.shutdown(Socket::shutdown_send, failure);
  expired_ = false;
  lingering_ = true;
  set_deadline(finishing_ ? drain_linger_time : std::chrono::milliseconds(linger_time));
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
  // One timer for all deadlines: if it expires too early, it is set to the next.
  if (!armed_ || *deadline_ < timer_.expiry()) arm();
}

void Connection::hasten_deadline(std::chrono::nanoseconds after) {
  if (deadline_ && *deadline_ - std::chrono::steady_clock::now() > after) set_deadline(after);
}

void Connection::arm() {
  armed_ = true;
  timer_.expires_at(*deadline_);
  timer_.async_wait([self = shared_from_this()](ErrorCodeOfBoost failure) {
    if (failure) return;
    self->armed_ = false;
    if (!self->deadline_) return;
    if (std::chrono::steady_clock::now() < *self->deadline_) return self->arm();
    if (self->writing_ && self->client_takes())
      return self->set_deadline(self->context_.limits.write_time);
    self->expired_ = true;
    self->cancel_operations();
    // An operation may just have ended and the next not yet begun: retried until it is noticed.
    self->set_deadline(deadline_retry);
  });
}

}  // namespace motley::server
