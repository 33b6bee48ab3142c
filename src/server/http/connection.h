#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>

#include "base/result.h"
#include "net/byte_stream.h"
#include "server/http/exchange.h"
#include "server/http/limits.h"
#include "server/http/memory_budget.h"
#include "server/http/request_head.h"
#include "server/http/timers.h"
#include "server/http/trusted_proxies.h"

namespace motley::server {

class ConnectionTable;
class PipelineTurns;

// Shared by all connections of a server.
struct ConnectionContext {
  HttpLimits limits;
  HttpHooks hooks;
  TrustedProxies proxies;
  Timers* timers = nullptr;
  MemoryBudget* bodies = nullptr;
  ConnectionTable* table = nullptr;
  PipelineTurns* turns = nullptr;
};

// A client's connection: reads requests, passes them to the handler one after the other, and
// watches for the client's disconnection meanwhile. Everything runs on its socket's executor, a
// strand.
class Connection final : public std::enable_shared_from_this<Connection>, private Exchange {
 public:
  // The context must outlive the connection.
  Connection(net::ByteStream stream, const ConnectionContext& context);
  ~Connection() override;

  // Runs until the client or the server closes the connection.
  boost::asio::awaitable<void> run();

  // Thread-safe: takes no further requests. An idle connection closes now, and so does one whose
  // partly sent request does not arrive soon.
  void finish();
  // Thread-safe: closes the connection at once.
  void abort();
  // Instead of run(): answers with `why` and closes.
  boost::asio::awaitable<void> turn_away(std::string_view why);
  // On the executor, if run() has ended for lack of memory: answers so if nothing was answered.
  void end_without_memory();

  // By which connections are limited.
  const std::string& address() const { return stream_.peer().client; }
  // Whether it is a trusted proxy's, which connects for many clients.
  bool is_proxy() const { return context_.proxies.trust(stream_.peer()); }

 private:
  using Failure = net::ByteStream::Failure;
  enum class Incoming { none, whole, refused };

  void begin();
  boost::asio::awaitable<void> end();
  // Waits for a request and leaves it in request_, or the answer to an invalid one in refusal_;
  // none: the client has gone, or nothing arrived in time.
  boost::asio::awaitable<Incoming> read_request();
  boost::asio::awaitable<bool> wait_for_request();
  boost::asio::awaitable<void> wait_for_turn();
  boost::asio::awaitable<std::optional<Error>> read_parts();
  boost::asio::awaitable<Result<RequestHead>> read_head();
  boost::asio::awaitable<std::optional<Error>> read_body(const RequestHead& head,
                                                         std::size_t max_bytes);
  boost::asio::awaitable<std::optional<Error>> read_plain_body(std::size_t bytes);
  boost::asio::awaitable<std::optional<Error>> read_chunked_body(std::size_t max_bytes);
  std::optional<Error> append_to_body(std::string_view content, std::size_t max_bytes);
  Result<void> take_for_body(std::size_t bytes);
  boost::asio::awaitable<std::optional<Error>> read_more();
  std::string_view buffered() const;
  boost::asio::awaitable<void> answer();
  boost::asio::awaitable<void> refuse();
  void log_answer(std::string_view event) const;

  // Reads what the client sends meanwhile, to notice a disconnection.
  void watch();
  void watch_for_reset();
  void drop_and_watch();
  void received_meanwhile(Failure failure);
  boost::asio::awaitable<void> stop_watching();
  void client_has_gone();
  void probe_client();

  // Writes everything, as long as the client takes some of it in each write_time.
  boost::asio::awaitable<void> write_bytes(std::array<std::string_view, 3> parts);
  bool client_takes();
  std::string head_of(const HttpResponse& response, std::optional<std::size_t> body_bytes) const;
  // Closes such that the client can read the answer even if it is still sending.
  boost::asio::awaitable<void> close_gently();

  void set_deadline(std::chrono::nanoseconds after);
  void shorten_deadline(std::chrono::nanoseconds after);
  void clear_deadline();
  void deadline_passed();

  // Exchange
  const HttpRequest& request() const override { return *request_; }
  boost::asio::any_io_executor executor() override;
  void drop_body() override;
  Result<void> charge_body(std::size_t bytes) override { return take_for_body(bytes); }
  void replace_body(std::string body) override { request_->body = std::move(body); }
  void add_header(std::string name, std::string value) override {
    headers_.emplace_back(std::move(name), std::move(value));
  }
  void log_quietly() override { quiet_ = true; }
  void log_field(LogField field) override { log_fields_.push_back(std::move(field)); }
  void log_error(const HttpResponse& response) override;
  void log_first_token() override;
  int status() const override { return status_; }
  boost::asio::awaitable<void> send(HttpResponse response) override;
  boost::asio::awaitable<void> send_pieces(HttpResponse head, PieceSource next) override;
  boost::asio::awaitable<void> begin_stream(HttpResponse head) override;
  boost::asio::awaitable<void> write(std::string piece) override;
  boost::asio::awaitable<void> end_stream() override;
  std::size_t max_backlog_bytes() const override { return context_.limits.stream_backlog_bytes; }
  void cut(std::string_view why) override;
  bool gone() const override { return gone_; }
  void on_gone(std::function<void()> notice) override;

  net::ByteStream stream_;
  const ConnectionContext& context_;
  boost::beast::flat_buffer buffer_;  // received bytes that were not used yet
  bool idle_ = false;                 // between requests
  bool reading_ = false;              // a request has partly arrived
  bool lingering_ = false;            // at the end
  bool served_ = false;               // at least one request
  bool finishing_ = false;
  bool ended_ = false;  // the client sends nothing more
  bool gone_ = false;
  std::function<void()> gone_notice_;

  // The current request and its answer:
  std::optional<HttpRequest> request_;
  std::optional<HttpResponse> refusal_;
  MemoryBudget::Share body_share_;
  std::size_t received_bytes_ = 0;  // of the body, which may have been dropped since
  bool http_1_0_ = false;
  bool keep_alive_ = false;
  bool head_only_ = false;
  std::vector<std::pair<std::string, std::string>> headers_;
  bool quiet_ = false;
  TimePoint start_;  // of the answer
  std::vector<LogField> log_fields_;
  int status_ = 0;  // 0 until the header is sent
  bool complete_ = false;
  bool streams_events_ = false;
  bool probed_ = false;
  std::size_t sent_bytes_ = 0;

  bool writing_ = false;
  std::size_t taken_at_mark_ = 0;  // by the client, when the write's deadline was set

  bool watching_ = false;
  bool may_watch_ = false;  // a request is being answered
  boost::asio::cancellation_signal stop_watch_;
  std::string dropped_;  // the last bytes that found no space in buffer_
  std::size_t dropped_bytes_ = 0;
  boost::asio::steady_timer wake_;  // as an event
  std::atomic<bool> has_turn_{false};

  std::unique_ptr<Timer> timer_;
  bool expired_ = false;
  std::optional<TimePoint> deadline_;
};

}  // namespace motley::server
