#pragma once

#include <functional>
#include <string>
#include <string_view>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include "base/result.h"
#include "server/http/message.h"

namespace motley::server {

// The next piece of a body each time it is called; empty at the end.
using PieceSource = std::function<std::string()>;

// One request and the ways to answer it. Everything here happens on the connection's executor, one
// thing at a time.
class Exchange {
 public:
  virtual ~Exchange() = default;

  virtual const HttpRequest& request() const = 0;
  virtual boost::asio::any_io_executor executor() = 0;
  // Gives the memory of the request's body back: nothing refers to it any more.
  virtual void drop_body() = 0;
  // Counts so many bytes of memory more for the body, or says which limit forbids them.
  // From any thread, until drop_body().
  virtual Result<void> charge_body(std::size_t bytes) = 0;
  // The body, decoded, in place of what came.
  virtual void replace_body(std::string body) = 0;

  // Goes into the head of the answer, whichever it will be.
  virtual void add_header(std::string name, std::string value) = 0;
  // The answer is logged only where something is wrong with it, or at debug: it is asked for every
  // few seconds.
  virtual void log_quietly() = 0;
  // Of the answer; 0 while there is none.
  virtual int status() const = 0;

  // The whole answer, once; or else a stream of pieces.
  virtual boost::asio::awaitable<void> send(HttpResponse response) = 0;
  // A whole answer too, whose body is made as the client takes it, so that a large one never stands
  // in memory as text: with its length where it is short, in chunks otherwise. `head.body` is
  // empty.
  virtual boost::asio::awaitable<void> send_pieces(HttpResponse head, PieceSource next) = 0;

  // The head of an answer whose body comes in pieces; `head.body` is the first of them.
  virtual boost::asio::awaitable<void> begin_stream(HttpResponse head) = 0;
  virtual boost::asio::awaitable<void> write(std::string piece) = 0;
  virtual boost::asio::awaitable<void> end_stream() = 0;

  // What may wait to be written to a client that takes a stream slower than it is made.
  virtual std::size_t max_backlog_bytes() const = 0;
  // Ends the connection though an answer is on its way: the client costs more than it may.
  virtual void cut(std::string_view why) = 0;

  // Whether the client has gone away, or takes nothing any more: what is sent is lost.
  virtual bool gone() const = 0;
  // Called once when that happens, not from inside on_gone() itself.
  virtual void on_gone(std::function<void()> notice) = 0;
};

// Answers one request. Must send an answer or end a stream, unless the client is gone.
using HttpHandler = std::function<boost::asio::awaitable<void>(Exchange&)>;

// What a server does with requests.
struct HttpHooks {
  HttpHandler handler;
  // Decides on a head. What it refuses is answered without reading the body.
  std::function<HeadVerdict(const HttpHead&)> admit;
  // The answer to what never became a request. Of a head that could not be read there is only an
  // id.
  std::function<HttpResponse(const Error&, const HttpHead&)> refuse;
};

}  // namespace motley::server
