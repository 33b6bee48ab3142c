#include "server/http/connections/request_exchange.h"

#include <algorithm>
#include <utility>

#include <boost/beast/http/status.hpp>

#include "base/cat.h"
#include "base/check.h"
#include "base/log.h"
#include "base/system/random_id.h"
#include "server/http/connections/connection.h"

namespace motley::server {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

constexpr std::size_t first_body_bytes = 64 << 10;

std::string_view view(boost::beast::string_view text) { return {text.data(), text.size()}; }

}  // namespace

RequestExchange::RequestExchange(Connection& connection) : connection_(connection) {}

// ---- the request ----

void RequestExchange::take_head(RequestHead head) {
  http_1_0_ = head.http_1_0;
  keep_alive_ = head.keep_alive;
  incoming_ = IncomingBody(head, connection_.context().limits.chunk_extra_bytes);
  static_cast<HttpHead&>(request_) = std::move(head.head);
  request_.peer = connection_.peer().name;
  connection_.context().proxies.describe_client(connection_.peer(), head.forwarded, request_);
}

void RequestExchange::take_verdict(HeadVerdict verdict, MemoryBudget::Share body_share) {
  request_.holder = std::move(verdict.holder);
  request_.parameter = std::move(verdict.parameter);
  request_.may_change_server = verdict.may_change_server;
  body_share_ = std::move(body_share);
  incoming_.streamed = verdict.streams_body;
  const std::size_t most = connection_.context().limits.body_bytes;
  request_.max_body_bytes =
      incoming_.streamed ? verdict.max_body_bytes : std::min(verdict.max_body_bytes, most);
  incoming_.max_bytes = request_.max_body_bytes;
}

void RequestExchange::refuse(const Error& error) {
  keep_alive_ = false;
  if (request_.id.empty()) {
    request_.id = random_id();
    request_.address = connection_.address();
  }
  refusal_ = connection_.context().hooks.refuse(error, request_);
}

// The budget counts the memory allocated for the body, which grows as data arrives: what a client
// announces costs nothing.
std::optional<Error> RequestExchange::append_to_body(std::string_view content) {
  std::string& body = request_.body;
  const std::size_t needed = body.size() + content.size();
  if (needed > body_share_.bytes()) {
    const std::size_t most = incoming_.chunks ? incoming_.max_bytes : needed + incoming_.left;
    const std::size_t capacity =
        std::min(std::max({needed, 2 * body_share_.bytes(), first_body_bytes}), most);
    const std::size_t more = capacity - body_share_.bytes();
    if (Result<void> taken = charge_body(more); !taken.ok()) return taken.error();
    std::string larger;  // reserve() of a non-empty string would allocate more than requested
    larger.reserve(capacity);
    larger.append(body);
    body.swap(larger);
  }
  body.append(content);
  return std::nullopt;
}

asio::awaitable<Result<std::string_view>> RequestExchange::next_body_piece() {
  MOTLEY_CHECK(incoming_.streamed, "a body that is not read as a whole");
  return connection_.next_streamed_piece(incoming_);
}

void RequestExchange::drop_body() {
  std::string().swap(request_.body);
  body_share_ = {};
}

Result<void> RequestExchange::charge_body(std::size_t bytes) {
  switch (body_share_.grow(bytes)) {
    case MemoryBudget::Refusal::none:
      break;
    case MemoryBudget::Refusal::all:
      return Error(
          ErrorCode::busy,
          cat("the bodies of all requests may hold ", connection_.context().limits.all_bodies_bytes,
              " bytes together, and there is no room for another"),
          "", "try again in a moment");
    case MemoryBudget::Refusal::address:
      return Error(
          ErrorCode::busy,
          cat("the bodies of requests from ", request_.client(), " may hold ",
              body_share_.max_address_bytes(), " bytes together until they are read, and they do"),
          "", "send fewer at once, or try again in a moment");
  }
  return {};
}

// ---- the connection ----

asio::any_io_executor RequestExchange::executor() { return connection_.executor(); }

bool RequestExchange::gone() const { return connection_.gone(); }

void RequestExchange::on_gone(std::function<void()> notice) {
  gone_notice_ = std::move(notice);
  if (gone_notice_) connection_.watch_for_end();
}

void RequestExchange::notify_gone() {
  if (gone_notice_) gone_notice_();
}

// An answer that is made at once needs no probe.
RequestExchange::Probe RequestExchange::probe(bool writing) {
  if (!wants_notice() || probed_) return Probe::none;
  // The client may have all of a write whose end is not known here yet: that end asks again.
  if (writing && !http_1_0_) return Probe::later;
  probed_ = true;
  // Interim answers are not for HTTP/1.0.
  if (http_1_0_) return Probe::counts_as_gone;
  if (complete_) return Probe::none;
  if (status_ == 0) return Probe::interim_answer;
  return streams_events_ ? Probe::comment_of_events : Probe::none;
}

void RequestExchange::cut(std::string_view why) {
  if (gone()) return;
  log::warning("http.cut", {{"id", request_.id}, {"peer", connection_.peer().name}, {"why", why}});
  connection_.cut();
}

std::size_t RequestExchange::max_backlog_bytes() const {
  return connection_.context().limits.stream_backlog_bytes;
}

// ---- the answer ----

TimePoint RequestExchange::now() const { return connection_.context().timers->now(); }

void RequestExchange::begin_answer() { log_.begin(now(), connection_.sent_bytes()); }

void RequestExchange::end_answer(std::string_view event) {
  MOTLEY_CHECK(complete_ || gone(), "a handler that leaves its request unanswered");
  log_.write(event, request_,
             {.peer = connection_.peer().name,
              .status = status_,
              .gone = gone(),
              .received = incoming_.received,
              .sent_bytes = connection_.sent_bytes(),
              .now = now()});
}

std::string RequestExchange::head_of(const HttpResponse& response,
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
  const bool another = keeps_alive() && !connection_.finishing();
  head += another ? "Connection: keep-alive\r\n" : "Connection: close\r\n";
  // Anthropic's clients read the second.
  head += cat("X-Request-Id: ", request_.id, "\r\nRequest-Id: ", request_.id, "\r\n");
  for (const auto* const list : {&headers_, &response.headers})
    for (const auto& [name, value] : *list) head += cat(name, ": ", value, "\r\n");
  return head + "\r\n";
}

asio::awaitable<void> RequestExchange::send(HttpResponse response) {
  MOTLEY_CHECK(status_ == 0, "two answers to one request");
  if (!incoming_.finished()) keep_alive_ = false;
  status_ = response.status;
  complete_ = true;
  log_.add_error(response);
  const std::string head = head_of(response, response.body.size());
  co_await connection_.write({head, has_no_content() ? std::string_view() : response.body, ""});
}

asio::awaitable<void> RequestExchange::send_pieces(HttpResponse head, PieceSource next) {
  const std::size_t most = connection_.context().limits.whole_answer_bytes;
  std::string piece = next();
  while (!piece.empty() && head.body.size() + piece.size() <= most) {
    head.body += piece;
    piece = next();
  }
  if (piece.empty()) {
    co_await send(std::move(head));
    co_return;
  }
  co_await begin_stream(std::move(head));
  for (; !piece.empty() && !gone(); piece = next()) co_await write(std::move(piece));
  co_await end_stream();
}

asio::awaitable<void> RequestExchange::begin_stream(HttpResponse head) {
  MOTLEY_CHECK(status_ == 0, "two answers to one request");
  status_ = head.status;
  // Without chunks, only the end of the connection marks the end of the body.
  if (http_1_0_ || !incoming_.finished()) keep_alive_ = false;
  streams_events_ = !has_no_content() && head.content_type.starts_with("text/event-stream");
  const std::string bytes = head_of(head, std::nullopt);
  co_await connection_.write({bytes, "", ""});
  co_await write(std::move(head.body));
}

asio::awaitable<void> RequestExchange::write(std::string piece) {
  constexpr std::string_view hex = "0123456789abcdef";
  if (piece.empty() || has_no_content()) co_return;
  if (http_1_0_) {
    co_await connection_.write({piece, "", ""});
    co_return;
  }
  std::string size;
  for (std::size_t rest = piece.size(); rest > 0; rest >>= 4) size.insert(0, 1, hex[rest & 15]);
  size += "\r\n";
  co_await connection_.write({size, piece, "\r\n"});
}

asio::awaitable<void> RequestExchange::end_stream() {
  complete_ = true;
  if (!http_1_0_ && !has_no_content()) co_await connection_.write({"0\r\n\r\n", "", ""});
}

// ---- the log ----

void RequestExchange::log_first_token() { log_.add_first_token(now()); }

}  // namespace motley::server
