#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>

#include "base/result.h"
#include "net/byte_stream.h"
#include "server/http/connections/request_exchange.h"
#include "server/http/limits/deadline.h"
#include "server/http/limits/limits.h"
#include "server/http/limits/memory_budget.h"
#include "server/http/messages/exchange.h"
#include "server/http/messages/request_head.h"
#include "server/http/messages/trusted_proxies.h"

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

// A client's connection: reads requests from a stream, passes them to the handler one after the
// other, and watches for the client's disconnection meanwhile. Everything runs on the stream's
// executor, a strand.
class Connection final : public std::enable_shared_from_this<Connection> {
 public:
  // The context must outlive the connection.
  Connection(net::ByteStream stream, const ConnectionContext& context);
  ~Connection();

  // Runs until the client or the server closes the connection.
  boost::asio::awaitable<void> run();

  // Thread-safe: takes no further requests. An idle connection closes now, and so does one whose
  // partly sent request does not arrive soon; one whose body is streamed counts as being answered.
  void finish();
  // Thread-safe: closes the connection at once.
  void abort();
  // Instead of run(): answers with `why` and closes.
  boost::asio::awaitable<void> turn_away(std::string_view why);
  // On the executor, if run() has ended for lack of memory: answers so if nothing was answered.
  void end_without_memory();

  const net::Peer& peer() const { return stream_.peer(); }
  // By which connections are limited.
  const std::string& address() const { return peer().client; }
  // Whether it is a trusted proxy's, which connects for many clients.
  bool is_proxy() const { return context_.proxies.trust(peer()); }

  // What follows is for its exchange.

  const ConnectionContext& context() const { return context_; }
  boost::asio::any_io_executor executor() { return stream_.executor(); }
  // Of a body that is streamed, within the time that each part of it has.
  boost::asio::awaitable<Result<std::string_view>> next_streamed_piece(IncomingBody& body);
  // Writes everything, as long as the client takes some of it in each write_time.
  boost::asio::awaitable<void> write(net::ByteStream::Parts parts);
  std::size_t sent_bytes() const { return write_.sent; }
  // Discards what the client has not read, and closes.
  void cut();
  bool finishing() const { return finishing_; }
  bool gone() const { return gone_; }
  // Someone wants to know when the client goes: looks for that, but does not tell during this call.
  void watch_for_end();

 private:
  using Failure = net::ByteStream::Failure;

  void begin();
  boost::asio::awaitable<void> end();
  boost::asio::awaitable<bool> wait_for_request();
  boost::asio::awaitable<void> wait_for_turn();
  // Returns whether another request may follow.
  boost::asio::awaitable<bool> serve_request();
  boost::asio::awaitable<void> answer();
  void set_request_deadline();

  // They return an error that the connection itself has detected; `cancelled`: the client has gone.
  boost::asio::awaitable<std::optional<Error>> read_request();
  boost::asio::awaitable<Result<RequestHead>> read_head();
  boost::asio::awaitable<std::optional<Error>> read_body();
  // The next piece of the body, which lies in the buffer until the next call; empty at its end.
  boost::asio::awaitable<Result<std::string_view>> next_piece(IncomingBody& body);
  boost::asio::awaitable<std::optional<Error>> read_more(std::size_t max_bytes = piece_bytes);
  boost::asio::awaitable<void> ask_to_continue();
  std::string_view buffered() const;

  // Reads what the client sends meanwhile, to notice a disconnection.
  void watch();
  void watch_for_reset();
  void drop_and_watch();
  void received_meanwhile(Failure failure);
  boost::asio::awaitable<void> stop_watching();
  void client_has_gone();
  void probe_client();

  bool client_takes();
  // Closes such that the client can read the answer even if it is still sending.
  boost::asio::awaitable<void> close_gently();
  void deadline_passed();

  net::ByteStream stream_;
  const ConnectionContext& context_;
  boost::beast::flat_buffer buffer_;  // received bytes that were not used yet
  Deadline deadline_;
  std::optional<RequestExchange> exchange_;  // of the current request

  enum class Phase : std::uint8_t { idle, reading, answering, lingering };
  std::optional<Phase> phase_;
  bool served_ = false;  // at least one request
  bool finishing_ = false;
  bool gone_ = false;

  struct Write {
    bool running = false;
    std::size_t taken_at_mark = 0;  // by the client, when the deadline was set
    std::size_t sent = 0;           // bytes, of all answers
  };
  Write write_;

  struct Watch {
    bool running = false;
    bool ended = false;  // the client sends nothing more
    boost::asio::cancellation_signal stop;
    std::string dropped;  // the last bytes that found no space in the buffer
    std::size_t dropped_bytes = 0;
  };
  Watch watch_;
  boost::asio::steady_timer wake_;  // as an event
  std::atomic<bool> has_turn_{false};
};

}  // namespace motley::server
