#pragma once

#include <functional>
#include <string>
#include <string_view>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include "base/result.h"
#include "server/http/messages/message.h"

namespace motley::server {

// Returns the next piece of a body on each call; empty at the end.
using PieceSource = std::function<std::string()>;

// One request and its answer. Everything runs on the connection's executor, one call at a time.
class Exchange {
 public:
  virtual ~Exchange() = default;

  virtual const HttpRequest& request() const = 0;
  virtual boost::asio::any_io_executor executor() = 0;
  // Of a body that the route streams: its next piece, valid until the next call; empty at the end.
  // Each part of it has a time to come, so that a sender that stops is an error, as are framing
  // that is wrong and a body beyond its limit; `cancelled`: the client has gone. What is not read
  // ends the connection after the answer.
  virtual boost::asio::awaitable<Result<std::string_view>> next_body_piece() = 0;
  // Frees the memory of the request's body, which must not be used any more.
  virtual void drop_body() = 0;
  // Charges this many more bytes of memory for the body, or says which limit forbids that.
  // Thread-safe; until drop_body().
  virtual Result<void> charge_body(std::size_t bytes) = 0;
  // Replaces the body by the decoded one.
  virtual void replace_body(std::string body) = 0;

  // Adds a header to any answer.
  virtual void add_header(std::string name, std::string value) = 0;
  // Logs the answer only if it is an error, or at debug level: for requests that come every few
  // seconds.
  virtual void log_quietly() = 0;
  // Adds a field to the request's line in the log. No text of a prompt or an answer.
  virtual void log_field(LogField field) = 0;
  // Logs why the answer is an error, where its stream has begun. send() does so itself.
  virtual void log_error(const HttpResponse& response) = 0;
  // The first token has come: logs the time since the request was whole, once.
  virtual void log_first_token() = 0;
  // Of the answer; 0 before it is sent.
  virtual int status() const = 0;

  // Sends a whole answer, once; the alternatives are send_pieces() and a stream.
  virtual boost::asio::awaitable<void> send(HttpResponse response) = 0;
  // Sends a whole answer whose body is made as the client reads it, so that a large one is never in
  // memory as a whole: with its length if it is short, else in chunks. `head.body` is empty.
  virtual boost::asio::awaitable<void> send_pieces(HttpResponse head, PieceSource next) = 0;

  // Begins an answer whose body is streamed; `head.body` is its first piece.
  virtual boost::asio::awaitable<void> begin_stream(HttpResponse head) = 0;
  virtual boost::asio::awaitable<void> write(std::string piece) = 0;
  virtual boost::asio::awaitable<void> end_stream() = 0;

  // The most bytes that may wait for a client that reads a stream more slowly than it is made.
  virtual std::size_t max_backlog_bytes() const = 0;
  // Closes the connection during an answer, because the client exceeds its limits.
  virtual void cut(std::string_view why) = 0;

  // Whether the client has disconnected or stopped reading: what is sent is lost.
  virtual bool gone() const = 0;
  // Called once when that happens, but not during on_gone() itself. While a streamed body is still
  // to be read, its reader notices it.
  virtual void on_gone(std::function<void()> notice) = 0;
};

// Answers one request. Must send an answer or end a stream, unless the client is gone.
using HttpHandler = std::function<boost::asio::awaitable<void>(Exchange&)>;

// A server's handling of requests.
struct HttpHooks {
  HttpHandler handler;
  // Decides by the header. If it refuses, the answer is sent without reading the body.
  std::function<HeadVerdict(const HttpHead&)> admit;
  // The answer to an invalid request. If its header could not be parsed, only the id is set.
  std::function<HttpResponse(const Error&, const HttpHead&)> refuse;
};

}  // namespace motley::server
