#include "server/http/connections/connection.h"

#include <tuple>
#include <utility>

#include <boost/asio/post.hpp>

#include "server/http/connections/connection_table.h"
#include "server/http/connections/pipeline_turns.h"

namespace motley::server {
namespace {

namespace asio = boost::asio;

// How soon a connection looks for its turn if there was no memory to wake it.
constexpr auto look_for_turn = std::chrono::seconds(1);

// Used when there is no memory to build it.
constexpr std::string_view out_of_memory_answer =
    "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: "
    "143\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"
    R"({"error":{"message":"out of memory: try again in a moment, or ask for less at once",)"
    R"("type":"server_error","param":null,"code":"out_of_memory"}})";
static_assert(out_of_memory_answer.substr(out_of_memory_answer.find('{')).size() == 143);

}  // namespace

Connection::Connection(net::ByteStream stream, const ConnectionContext& context)
    : stream_(std::move(stream)),
      context_(context),
      buffer_(context.limits.header_bytes + context.limits.pipelined_bytes + streamed_piece_bytes),
      deadline_(*context.timers),
      wake_(stream_.executor()) {}

Connection::~Connection() = default;

void Connection::begin() {
  deadline_.start(executor(), [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->deadline_passed();
  });
}

asio::awaitable<void> Connection::run() {
  const auto self = shared_from_this();
  begin();
  while (!gone_) {
    if (!co_await wait_for_request()) break;
    exchange_.emplace(*this);
    const bool keeps_alive = co_await serve_request();
    exchange_.reset();
    served_ = true;
    if (!keeps_alive || finishing_) break;
  }
  co_await end();
}

asio::awaitable<void> Connection::turn_away(std::string_view why) {
  const auto self = shared_from_this();
  begin();
  exchange_.emplace(*this);
  exchange_->refuse(Error(ErrorCode::unavailable, std::string(why), "",
                          "try again in a moment, or keep fewer open"));
  co_await exchange_->send(*std::move(exchange_->refusal()));
  exchange_.reset();
  co_await end();
}

asio::awaitable<void> Connection::end() {
  if (!gone_) co_await close_gently();
  stream_.close();
  deadline_.stop();
}

void Connection::finish() {
  asio::post(executor(), [self = shared_from_this()] {
    self->finishing_ = true;
    const HttpLimits& limits = self->context_.limits;
    if (self->phase_ == Phase::idle) self->stream_.cancel();
    if (self->phase_ == Phase::reading) self->deadline_.shorten(limits.drain_request_time);
    if (self->phase_ == Phase::lingering) self->deadline_.shorten(limits.drain_linger_time);
  });
}

void Connection::abort() {
  asio::post(executor(), [self = shared_from_this()] {
    self->finishing_ = true;
    self->client_has_gone();
    self->stream_.close();
  });
}

// The operations that waited for the handler have ended with it.
void Connection::end_without_memory() {
  if (exchange_) {
    exchange_->forget_notice();
    if (exchange_->status() == 0) std::ignore = stream_.write_now(out_of_memory_answer);
  }
  gone_ = true;
  stream_.close();
  deadline_.stop();
}

asio::awaitable<bool> Connection::wait_for_request() {
  if (served_) context_.table->waits(*this);
  if (buffer_.size() > 0) {
    if (served_) co_await wait_for_turn();
    co_return !gone_;
  }
  if (finishing_ && served_) co_return false;
  // An idle connection holds no buffer.
  buffer_.shrink_to_fit();
  phase_ = Phase::idle;
  deadline_.set(served_ ? context_.limits.idle_time : context_.limits.request_time);
  if (finishing_) deadline_.shorten(context_.limits.drain_request_time);
  const auto [failure] = co_await stream_.wait_readable();
  const bool arrived = !failure && !co_await read_more();
  deadline_.clear();
  phase_.reset();
  co_return arrived;
}

// Others get their turn before a client's next request that it has sent ahead.
asio::awaitable<void> Connection::wait_for_turn() {
  has_turn_ = false;
  context_.turns->wait([self = shared_from_this()] {
    self->has_turn_ = true;
    asio::post(self->executor(), [self] { self->wake_.cancel(); });
  });
  // If there is no memory to wake it, it looks by itself.
  while (!has_turn_) {
    wake_.expires_after(look_for_turn);
    co_await wake_.async_wait(net::no_throw);
  }
}

void Connection::set_request_deadline() {
  deadline_.set(context_.limits.request_time);
  if (finishing_) deadline_.shorten(context_.limits.drain_request_time);
}

asio::awaitable<bool> Connection::serve_request() {
  phase_ = Phase::reading;
  set_request_deadline();
  const std::optional<Error> wrong = co_await read_request();
  deadline_.clear();
  phase_.reset();
  if (wrong && wrong->code() == ErrorCode::cancelled) co_return false;
  if (wrong) exchange_->refuse(*wrong);
  exchange_->begin_answer();
  if (exchange_->refusal()) {
    co_await exchange_->send(*std::move(exchange_->refusal()));
    exchange_->end_answer("http.refused");
  } else {
    co_await answer();
    exchange_->end_answer("http.request");
  }
  co_return exchange_->keeps_alive();
}

asio::awaitable<void> Connection::answer() {
  phase_ = Phase::answering;
  watch();
  co_await context_.hooks.handler(*exchange_);
  co_await stop_watching();
  exchange_->forget_notice();
}

// What waits ends, unless it is a write of which the client takes enough.
void Connection::deadline_passed() {
  if (!deadline_.is_due()) return;
  if (write_.running && client_takes()) return deadline_.set(context_.limits.write_time);
  deadline_.expire();
  stream_.cancel();
}

void Connection::client_has_gone() {
  if (std::exchange(gone_, true)) return;
  if (exchange_) exchange_->notify_gone();
}

void Connection::cut() {
  stream_.reset_when_closed();
  client_has_gone();
  stream_.cancel();
}

}  // namespace motley::server
