#include "server/http/connection.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>

#include "base/cat.h"
#include "base/log.h"
#include "server/http/chunk_decoder.h"
#include "server/http/connection_constants.h"
#include "server/http/connection_table.h"
#include "server/http/head_scanner.h"
#include "server/http/pipeline_turns.h"

namespace motley::server {
namespace {

namespace asio = boost::asio;

constexpr std::size_t max_logged_message = 500;
constexpr std::size_t first_body_bytes = 64 << 10;
// How soon a connection looks for its turn if there was no memory to wake it.
constexpr auto look_for_turn = std::chrono::seconds(1);

// Used when there is no memory to build it.
constexpr std::string_view out_of_memory_answer =
    "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: "
    "143\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"
    R"({"error":{"message":"out of memory: try again in a moment, or ask for less at once",)"
    R"("type":"server_error","param":null,"code":"out_of_memory"}})";
static_assert(out_of_memory_answer.substr(out_of_memory_answer.find('{')).size() == 143);

double milliseconds(Duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

log::Field field_of(const LogField& field) {
  switch (field.kind) {
    case LogField::Kind::text:
      return {field.key, field.text};
    case LogField::Kind::count:
      return {field.key, field.count};
    case LogField::Kind::number:
      break;
  }
  return {field.key, field.number};
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

Connection::Connection(net::ByteStream stream, const ConnectionContext& context)
    : stream_(std::move(stream)),
      context_(context),
      buffer_(context.limits.header_bytes + context.limits.pipelined_bytes + piece_bytes),
      wake_(stream_.executor()) {}

Connection::~Connection() = default;

asio::any_io_executor Connection::executor() { return stream_.executor(); }

void Connection::drop_body() {
  std::string().swap(request_->body);
  body_share_ = {};
}

void Connection::begin() {
  timer_ = context_.timers->make_timer(stream_.executor(), [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->deadline_passed();
  });
}

asio::awaitable<void> Connection::run() {
  const auto self = shared_from_this();
  begin();
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
  co_await end();
}

asio::awaitable<void> Connection::turn_away(std::string_view why) {
  const auto self = shared_from_this();
  begin();
  request_.emplace().id = new_request_id();
  const Error error(ErrorCode::unavailable, std::string(why), "",
                    "try again in a moment, or keep fewer open");
  HttpResponse response = context_.hooks.refuse(error, *request_);
  co_await send(std::move(response));
  co_await end();
}

asio::awaitable<void> Connection::end() {
  if (!gone_) co_await close_gently();
  stream_.close();
  clear_deadline();
  timer_.reset();
}

void Connection::finish() {
  asio::post(executor(), [self = shared_from_this()] {
    self->finishing_ = true;
    if (self->idle_) self->stream_.cancel();
    if (self->reading_) self->shorten_deadline(self->context_.limits.drain_request_time);
    if (self->lingering_) self->shorten_deadline(drain_linger_time);
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
  gone_notice_ = nullptr;
  if (status_ == 0 && request_) std::ignore = stream_.write_now(out_of_memory_answer);
  gone_ = true;
  stream_.close();
  clear_deadline();
  timer_.reset();
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
  idle_ = true;
  set_deadline(served_ ? context_.limits.idle_time : context_.limits.request_time);
  if (finishing_) shorten_deadline(context_.limits.drain_request_time);
  const auto [failure] = co_await stream_.wait_readable();
  const bool come = !failure && !co_await read_more();
  clear_deadline();
  idle_ = false;
  co_return come;
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
    co_await wake_.async_wait(no_throw);
  }
}

asio::awaitable<Connection::Incoming> Connection::read_request() {
  keep_alive_ = false;
  http_1_0_ = false;
  head_only_ = false;
  headers_.clear();
  quiet_ = false;
  log_fields_.clear();
  status_ = 0;
  complete_ = false;
  streams_events_ = false;
  probed_ = false;
  sent_bytes_ = 0;
  received_bytes_ = 0;
  if (!co_await wait_for_request()) co_return Incoming::none;

  reading_ = true;
  set_deadline(context_.limits.request_time);
  if (finishing_) shorten_deadline(context_.limits.drain_request_time);
  const std::optional<Error> wrong = co_await read_parts();
  reading_ = false;
  clear_deadline();
  if (wrong && wrong->code() == ErrorCode::cancelled) co_return Incoming::none;
  if (wrong) {
    // The rest of the request was not read, so later requests cannot be parsed.
    keep_alive_ = false;
    if (!request_) {
      request_.emplace().id = new_request_id();
      request_->address = address();
    }
    refusal_ = context_.hooks.refuse(*wrong, *request_);
  }
  co_return refusal_ ? Incoming::refused : Incoming::whole;
}

// Returns an error that the connection itself has detected.
asio::awaitable<std::optional<Error>> Connection::read_parts() {
  Result<RequestHead> head = co_await read_head();
  if (!head.ok()) co_return std::move(head).error();
  context_.table->works(*this);
  http_1_0_ = head->http_1_0;
  keep_alive_ = head->keep_alive;
  head_only_ = head->head.method == "HEAD";
  request_.emplace();
  static_cast<HttpHead&>(*request_) = std::move(head->head);
  request_->peer = stream_.peer().name;
  context_.proxies.describe_client(stream_.peer(), head->forwarded, *request_);

  HeadVerdict verdict = context_.hooks.admit(*request_);
  if (verdict.refusal) {
    keep_alive_ = keep_alive_ && !head->has_body();
    refusal_ = std::move(verdict.refusal);
    co_return std::nullopt;
  }
  request_->holder = std::move(verdict.holder);
  const MemoryBudget& bodies = *context_.bodies;
  body_share_ =
      MemoryBudget::Share(*context_.bodies, request_->client(),
                          verdict.authorized ? bodies.max_bytes() / 2 : bodies.max_address_bytes());
  request_->max_body_bytes = std::min(verdict.max_body_bytes, context_.limits.body_bytes);
  co_return co_await read_body(*head, request_->max_body_bytes);
}

std::string_view Connection::buffered() const {
  const auto bytes = buffer_.data();
  return {static_cast<const char*>(bytes.data()), bytes.size()};
}

asio::awaitable<std::optional<Error>> Connection::read_more() {
  if (!expired_) {
    const auto [failure, bytes] = co_await stream_.read_some(buffer_.prepare(piece_bytes));
    buffer_.commit(bytes);
    if (!failure) co_return std::nullopt;
  }
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
    if (until) set_deadline(*until - context_.timers->now());
    if (finishing_) shorten_deadline(context_.limits.drain_request_time);
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
    const std::size_t more = capacity - body_share_.bytes();
    if (Result<void> taken = take_for_body(more); !taken.ok()) return taken.error();
    std::string larger;  // reserve() of a non-empty string would allocate more than requested
    larger.reserve(capacity);
    larger.append(body);
    body.swap(larger);
  }
  body.append(content);
  received_bytes_ = body.size();
  return std::nullopt;
}

Result<void> Connection::take_for_body(std::size_t more) {
  switch (body_share_.grow(more)) {
    case MemoryBudget::Refusal::none:
      break;
    case MemoryBudget::Refusal::all:
      return Error(ErrorCode::busy,
                   cat("the bodies of all requests may hold ", context_.limits.all_bodies_bytes,
                       " bytes together, and there is no room for another"),
                   "", "try again in a moment");
    case MemoryBudget::Refusal::address:
      return Error(
          ErrorCode::busy,
          cat("the bodies of requests from ", request_->client(), " may hold ",
              body_share_.max_address_bytes(), " bytes together until they are read, and they do"),
          "", "send fewer at once, or try again in a moment");
  }
  return {};
}

asio::awaitable<void> Connection::answer() {
  start_ = context_.timers->now();
  may_watch_ = true;
  watch();
  co_await context_.hooks.handler(*this);
  co_await stop_watching();
  gone_notice_ = nullptr;
  MOTLEY_CHECK(complete_ || gone_, "a handler that leaves its request unanswered");
  log_answer("http.request");
}

asio::awaitable<void> Connection::refuse() {
  start_ = context_.timers->now();
  co_await send(*std::move(refusal_));
  log_answer("http.refused");
}

void Connection::log_answer(std::string_view event) const {
  const bool well = status_ == 200 && !gone_;
  const log::Level level = quiet_ && well ? log::Level::debug : log::Level::info;
  if (!log::enabled(level)) return;
  const std::string method = printable(request_->method);
  const std::string path = printable(request_->path.substr(0, 200));
  std::vector<log::Field> fields = {{"id", request_->id},
                                    {"peer", stream_.peer().name},
                                    {"client", request_->client()},
                                    {"method", method},
                                    {"path", path},
                                    {"status", status_ == 0 ? 499 : status_},
                                    {"gone", gone_},
                                    {"received", received_bytes_},
                                    {"sent", sent_bytes_},
                                    {"ms", milliseconds(context_.timers->now() - start_)}};
  for (const LogField& each : log_fields_) fields.push_back(field_of(each));
  log::write(level, event, fields);
}

void Connection::log_first_token() {
  constexpr std::string_view key = "first_token_ms";
  if (std::ranges::find(log_fields_, key, &LogField::key) != log_fields_.end()) return;
  log_field({key, milliseconds(context_.timers->now() - start_)});
}

void Connection::log_error(const HttpResponse& response) {
  if (response.error_code.empty()) return;
  log_field({"error", response.error_code});
  if (response.error_message.empty()) return;
  log_field({"message", printable(response.error_message.substr(0, max_logged_message))});
}

}  // namespace motley::server
