#pragma once

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
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>

#include "base/result.h"
#include "server/http/body_budget.h"
#include "server/http/exchange.h"
#include "server/http/limits.h"

namespace motley::server {

// What the connections of a server share.
struct ConnectionContext {
  HttpLimits limits;
  HttpHandler handler;
  // The answer to what is wrong before a handler sees it.
  std::function<HttpResponse(const Error&)> refuse;
  BodyBudget* bodies = nullptr;
};

// A client's connection: reads requests, hands each to the handler, one after the other, and keeps
// an eye on the client while the answer is made. All on the executor of its socket, a strand.
class Connection final : public std::enable_shared_from_this<Connection>, private Exchange {
 public:
  using Socket = boost::asio::ip::tcp::socket;

  // The context must outlive the connection.
  Connection(Socket socket, const ConnectionContext& context);
  ~Connection() override;

  // Until the client or the server has enough.
  boost::asio::awaitable<void> run();

  // From any thread: no request is taken any more, and an idle connection closes now.
  void finish();
  // From any thread: closes whatever is going on.
  void abort();

 private:
  using Parser = boost::beast::http::request_parser<boost::beast::http::buffer_body>;
  using ErrorCodeOfBoost = boost::system::error_code;

  // A request of which something has come: whole, or what is wrong with it; none if the client has
  // gone.
  boost::asio::awaitable<std::optional<Result<HttpRequest>>> read_request();
  boost::asio::awaitable<bool> wait_for_request();
  boost::asio::awaitable<std::optional<Error>> read_body(Parser& parser, std::string& body);
  std::optional<Error> check_head(const Parser& parser) const;
  bool first_line_has_come(const Parser& parser) const;
  Error reading_failed(const Parser& parser, ErrorCodeOfBoost failure) const;
  boost::asio::awaitable<void> answer(HttpRequest request);
  boost::asio::awaitable<void> refuse(const Error& error);

  // Takes in what the client sends meanwhile, so that we notice when it goes away.
  void watch();
  boost::asio::awaitable<void> stop_watching();
  void client_has_gone();

  boost::asio::awaitable<void> write_bytes(std::string_view bytes);
  std::string head_of(const HttpResponse& response, std::optional<std::size_t> body_bytes) const;
  // Closes so that the client gets to read the answer though it may still be sending.
  boost::asio::awaitable<void> close_gently();

  void set_deadline(std::chrono::nanoseconds after);
  void clear_deadline() { deadline_.reset(); }
  void arm();

  // Exchange
  const HttpRequest& request() const override { return *request_; }
  boost::asio::any_io_executor executor() override;
  void add_header(std::string name, std::string value) override {
    headers_.emplace_back(std::move(name), std::move(value));
  }
  int status() const override { return status_; }
  boost::asio::awaitable<void> send(HttpResponse response) override;
  boost::asio::awaitable<void> begin_stream(HttpResponse head) override;
  boost::asio::awaitable<void> write(std::string piece) override;
  boost::asio::awaitable<void> end_stream() override;
  bool gone() const override { return gone_; }
  void on_gone(std::function<void()> notice) override { gone_notice_ = std::move(notice); }

  Socket socket_;
  const ConnectionContext& context_;
  std::string peer_;
  boost::beast::flat_buffer buffer_;  // what has come and was not used yet
  bool idle_ = false;                 // between requests
  bool served_ = false;               // a request at least
  bool finishing_ = false;
  bool gone_ = false;
  std::function<void()> gone_notice_;

  // The request at hand and its answer.
  std::optional<HttpRequest> request_;
  BodyBudget::Share body_share_;
  bool http_1_0_ = false;
  bool keep_alive_ = false;
  bool head_only_ = false;
  std::vector<std::pair<std::string, std::string>> headers_;
  int status_ = 0;  // 0 until the head is sent
  bool complete_ = false;
  std::size_t sent_bytes_ = 0;

  bool watching_ = false;
  bool watch_no_more_ = false;
  boost::asio::cancellation_signal stop_watch_;
  boost::asio::steady_timer watch_ended_;

  boost::asio::steady_timer timer_;
  bool armed_ = false;
  bool expired_ = false;
  std::optional<std::chrono::steady_clock::time_point> deadline_;
};

}  // namespace motley::server
