#pragma once

#include <array>
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

#include "base/result.h"
#include "server/http/body_budget.h"
#include "server/http/exchange.h"
#include "server/http/limits.h"
#include "server/http/request_head.h"

namespace motley::server {

class ConnectionTable;

// What the connections of a server share.
struct ConnectionContext {
  HttpLimits limits;
  HttpHooks hooks;
  BodyBudget* bodies = nullptr;
  ConnectionTable* table = nullptr;
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

  // From any thread: no request is taken any more. An idle connection closes now, and one whose
  // request is half sent when it does not come soon.
  void finish();
  // From any thread: closes whatever is going on.
  void abort();
  // Instead of run(), at once: says so and closes.
  void turn_away(std::string_view why);
  // On the executor, where run() has ended for want of memory: answers so if nothing was answered.
  void end_without_memory();

  // That limits by client count by.
  const std::string& address() const { return address_; }

 private:
  using ErrorCodeOfBoost = boost::system::error_code;
  enum class Incoming { none, whole, refused };

  // Waits for a request and leaves it in request_, or the answer to what is wrong with it in
  // refusal_; none: the client has gone, or nothing came in time.
  boost::asio::awaitable<Incoming> read_request();
  boost::asio::awaitable<bool> wait_for_request();
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
  void log_answer(std::string_view event, std::chrono::steady_clock::time_point start) const;

  // Takes in what the client sends meanwhile, so that we notice when it goes away.
  void watch();
  boost::asio::awaitable<void> stop_watching();
  void client_has_gone();
  void cancel_operations();

  // Until all is written, as long as the client takes some of it in each write_time.
  boost::asio::awaitable<void> write_bytes(std::array<std::string_view, 3> parts);
  std::size_t bytes_taken();
  bool client_takes();
  std::string head_of(const HttpResponse& response, std::optional<std::size_t> body_bytes) const;
  // Closes so that the client gets to read the answer though it may still be sending.
  boost::asio::awaitable<void> close_gently();

  void set_deadline(std::chrono::nanoseconds after);
  void hasten_deadline(std::chrono::nanoseconds after);
  void clear_deadline() { deadline_.reset(); }
  void arm();

  // Exchange
  const HttpRequest& request() const override { return *request_; }
  boost::asio::any_io_executor executor() override;
  void drop_body() override;
  Result<void> charge_body(std::size_t bytes) override {
    return take_for_body(body_share_.bytes() + bytes);
  }
  void replace_body(std::string body) override { request_->body = std::move(body); }
  void add_header(std::string name, std::string value) override {
    headers_.emplace_back(std::move(name), std::move(value));
  }
  void log_quietly() override { quiet_ = true; }
  int status() const override { return status_; }
  boost::asio::awaitable<void> send(HttpResponse response) override;
  boost::asio::awaitable<void> send_pieces(HttpResponse head, PieceSource next) override;
  boost::asio::awaitable<void> begin_stream(HttpResponse head) override;
  boost::asio::awaitable<void> write(std::string piece) override;
  boost::asio::awaitable<void> end_stream() override;
  std::size_t max_backlog_bytes() const override { return context_.limits.stream_backlog_bytes; }
  void cut(std::string_view why) override;
  bool gone() const override { return gone_; }
  void on_gone(std::function<void()> notice) override { gone_notice_ = std::move(notice); }

  Socket socket_;
  const ConnectionContext& context_;
  std::string peer_;
  std::string address_;
  boost::beast::flat_buffer buffer_;  // what has come and was not used yet
  bool heard_ = false;                // something has come
  bool idle_ = false;                 // between requests
  bool reading_ = false;              // a request of which something has come
  bool lingering_ = false;            // at the end
  bool served_ = false;               // a request at least
  bool finishing_ = false;
  bool gone_ = false;
  bool reset_ = false;  // what the client has not taken is thrown away at the end
  std::function<void()> gone_notice_;

  // The request at hand and its answer.
  std::optional<HttpRequest> request_;
  std::optional<HttpResponse> refusal_;
  BodyBudget::Share body_share_;
  std::size_t received_bytes_ = 0;  // of the body, which may have been dropped since
  bool http_1_0_ = false;
  bool keep_alive_ = false;
  bool head_only_ = false;
  std::vector<std::pair<std::string, std::string>> headers_;
  bool quiet_ = false;
  int status_ = 0;  // 0 until the head is sent
  bool complete_ = false;
  std::size_t sent_bytes_ = 0;

  bool writing_ = false;
  std::size_t handed_over_ = 0;    // to the system, of all answers
  std::size_t taken_at_mark_ = 0;  // by the client, when the write's deadline was set

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
