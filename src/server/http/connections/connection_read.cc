// How requests come from a connection.

#include <algorithm>
#include <utility>

#include "base/cat.h"
#include "server/http/connections/connection.h"
#include "server/http/connections/connection_table.h"
#include "server/http/wire/head_scanner.h"

namespace motley::server {
namespace {

namespace asio = boost::asio;

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

Error gone_away() { return {ErrorCode::cancelled, "the client went away"}; }

// How much of a body is read at once.
std::size_t piece_of(const IncomingBody& body) {
  if (!body.streamed) return piece_bytes;
  return body.chunks ? streamed_piece_bytes
                     : std::clamp(body.left, piece_bytes, streamed_piece_bytes);
}

}  // namespace

asio::awaitable<std::optional<Error>> Connection::read_request() {
  Result<RequestHead> read = co_await read_head();
  if (!read.ok()) co_return std::move(read).error();
  context_.table->works(*this);
  const bool has_body = read->has_body();
  exchange_->take_head(*std::move(read));

  const HttpRequest& request = exchange_->request();
  HeadVerdict verdict = context_.hooks.admit(request);
  if (verdict.refusal) {
    if (has_body) exchange_->close_after();
    exchange_->refusal() = std::move(verdict.refusal);
    co_return std::nullopt;
  }
  const MemoryBudget& bodies = *context_.bodies;
  const std::size_t most = verdict.authorized ? bodies.max_bytes() / MemoryBudget::client_part
                                              : bodies.max_address_bytes();
  const std::string& client = verdict.holder ? verdict.holder->name : request.address;
  MemoryBudget::Share share(*context_.bodies, client, most);
  exchange_->take_verdict(std::move(verdict), std::move(share));
  if (exchange_->streams_body()) co_return std::nullopt;
  co_return co_await read_body();
}

std::string_view Connection::buffered() const {
  const auto bytes = buffer_.data();
  return {static_cast<const char*>(bytes.data()), bytes.size()};
}

asio::awaitable<std::optional<Error>> Connection::read_more(std::size_t max_bytes) {
  if (!deadline_.expired()) {
    const auto [failure, bytes] = co_await stream_.read_some(buffer_.prepare(max_bytes));
    buffer_.commit(bytes);
    if (!failure) co_return std::nullopt;
  }
  if (!deadline_.expired()) co_return gone_away();
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

asio::awaitable<std::optional<Error>> Connection::read_body() {
  while (true) {
    const Result<std::string_view> piece = co_await next_piece(exchange_->incoming());
    if (!piece.ok()) co_return piece.error();
    if (piece->empty()) co_return std::nullopt;
    if (auto wrong = exchange_->append_to_body(*piece)) co_return wrong;
  }
}

asio::awaitable<void> Connection::ask_to_continue() {
  const auto left = deadline_.left();
  co_await write({"HTTP/1.1 100 Continue\r\n\r\n", "", ""});
  deadline_.set(left);
  if (finishing_ && phase_ == Phase::reading) deadline_.shorten(context_.limits.drain_request_time);
}

asio::awaitable<Result<std::string_view>> Connection::next_piece(IncomingBody& body) {
  buffer_.consume(std::exchange(body.used, 0));
  if (!body.chunks && body.received == 0 && body.left > body.max_bytes)
    co_return body_too_long(cat(body.left), body.max_bytes);
  // Not within an answer that has begun.
  const bool asked = std::exchange(body.expects_continue, false) && exchange_->status() == 0;
  if (asked && buffer_.size() == 0) {
    co_await ask_to_continue();
    if (gone_) co_return gone_away();
  }
  while (!body.done()) {
    if (buffer_.size() == 0)
      if (auto wrong = co_await read_more(piece_of(body))) co_return *std::move(wrong);
    std::string_view content = buffered();
    if (body.chunks) {
      const Result<ChunkDecoder::Step> step = body.chunks->take(content);
      if (!step.ok()) co_return step.error();
      content = step->content;
      body.used = step->used;
      if (content.size() > body.max_bytes - body.received)
        co_return body_too_long(cat("more than ", body.max_bytes), body.max_bytes);
    } else {
      content = content.substr(0, body.left);
      body.used = content.size();
      body.left -= content.size();
    }
    body.received += content.size();
    if (!content.empty()) co_return content;
    buffer_.consume(std::exchange(body.used, 0));
  }
  co_return std::string_view();
}

asio::awaitable<Result<std::string_view>> Connection::next_streamed_piece(IncomingBody& body) {
  if (gone_ && !body.failure) body.failure = gone_away();
  if (body.failure) co_return *body.failure;
  const HttpLimits& limits = context_.limits;
  if (body.received == 0 || body.received >= body.mark + limits.write_progress_bytes) {
    body.mark = body.received;
    body.time_left = limits.request_time;
  }
  deadline_.set(body.time_left);
  if (deadline_.is_due()) deadline_.expire();
  Result<std::string_view> piece = co_await next_piece(body);
  body.time_left = deadline_.left();
  deadline_.clear();
  if (!piece.ok()) body.failure = piece.error();
  if (body.failure && body.failure->code() == ErrorCode::cancelled) client_has_gone();
  if (piece.ok() && piece->empty()) {
    buffer_.shrink_to_fit();
    watch();
  }
  co_return piece;
}

}  // namespace motley::server
