#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/asio/awaitable.hpp>

#include "base/system/clock.h"
#include "server/http/connections/incoming_body.h"
#include "server/http/connections/request_log.h"
#include "server/http/limits/memory_budget.h"
#include "server/http/messages/exchange.h"
#include "server/http/messages/request_head.h"

namespace motley::server {

class Connection;

// A request of a connection and its answer: made when the request's first byte is there, ended
// after the answer.
class RequestExchange final : public Exchange {
 public:
  explicit RequestExchange(Connection& connection);

  // While the request is read. The head has come, and is from this client.
  void take_head(RequestHead head);
  // What the head's route allows. `body_share` is charged for the body.
  void take_verdict(HeadVerdict verdict, MemoryBudget::Share body_share);
  std::optional<Error> append_to_body(std::string_view content);
  IncomingBody& incoming() { return incoming_; }
  bool streams_body() const { return incoming_.streamed; }
  // The request is wrong: later ones cannot be read, since the rest of it was not.
  void refuse(const Error& error);
  // The answer to a wrong request, if it is one.
  std::optional<HttpResponse>& refusal() { return refusal_; }

  // The answer begins, and has ended.
  void begin_answer();
  void end_answer(std::string_view event);
  // Whether the connection may go on with another request.
  bool keeps_alive() const { return keep_alive_ && incoming_.finished(); }
  void close_after() { keep_alive_ = false; }

  bool wants_notice() const { return gone_notice_ != nullptr; }
  void notify_gone();
  void forget_notice() { gone_notice_ = nullptr; }
  // How to ask the system of a client that sends no more whether it is still there.
  enum class Probe : std::uint8_t {
    later,
    none,
    counts_as_gone,
    interim_answer,
    comment_of_events
  };
  // Once; `writing`: a write has not ended.
  Probe probe(bool writing);

  const HttpRequest& request() const override { return request_; }
  boost::asio::any_io_executor executor() override;
  boost::asio::awaitable<Result<std::string_view>> next_body_piece() override;
  void drop_body() override;
  Result<void> charge_body(std::size_t bytes) override;
  void replace_body(std::string body) override { request_.body = std::move(body); }
  void add_header(std::string name, std::string value) override {
    headers_.emplace_back(std::move(name), std::move(value));
  }
  void log_quietly() override { log_.quieten(); }
  void log_field(LogField field) override { log_.add(std::move(field)); }
  void log_error(const HttpResponse& response) override { log_.add_error(response); }
  void log_first_token() override;
  int status() const override { return status_; }
  boost::asio::awaitable<void> send(HttpResponse response) override;
  boost::asio::awaitable<void> send_pieces(HttpResponse head, PieceSource next) override;
  boost::asio::awaitable<void> begin_stream(HttpResponse head) override;
  boost::asio::awaitable<void> write(std::string piece) override;
  boost::asio::awaitable<void> end_stream() override;
  std::size_t max_backlog_bytes() const override;
  void cut(std::string_view why) override;
  bool gone() const override;
  void on_gone(std::function<void()> notice) override;

 private:
  bool has_no_content() const { return request_.method == "HEAD"; }
  std::string head_of(const HttpResponse& response, std::optional<std::size_t> body_bytes) const;
  TimePoint now() const;

  Connection& connection_;
  HttpRequest request_;
  bool http_1_0_ = false;
  bool keep_alive_ = false;
  IncomingBody incoming_;
  MemoryBudget::Share body_share_;
  std::optional<HttpResponse> refusal_;

  std::vector<std::pair<std::string, std::string>> headers_;
  int status_ = 0;  // 0 until the header is sent
  bool streams_events_ = false;
  bool complete_ = false;
  bool probed_ = false;
  std::function<void()> gone_notice_;
  RequestLog log_;
};

}  // namespace motley::server
