#pragma once

#include <functional>
#include <string>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include "server/http/message.h"

namespace motley::server {

// One request and the ways to answer it. Everything here happens on the connection's executor, one
// thing at a time.
class Exchange {
 public:
  virtual ~Exchange() = default;

  virtual const HttpRequest& request() const = 0;
  virtual boost::asio::any_io_executor executor() = 0;

  // Goes into the head of the answer, whichever it will be.
  virtual void add_header(std::string name, std::string value) = 0;
  // Of the answer; 0 while there is none.
  virtual int status() const = 0;

  // The whole answer, once; or else a stream of pieces.
  virtual boost::asio::awaitable<void> send(HttpResponse response) = 0;

  // The head of an answer whose body comes in pieces; `head.body` is the first of them.
  virtual boost::asio::awaitable<void> begin_stream(HttpResponse head) = 0;
  virtual boost::asio::awaitable<void> write(std::string piece) = 0;
  virtual boost::asio::awaitable<void> end_stream() = 0;

  // Whether the client has gone away, or takes nothing any more: what is sent is lost.
  virtual bool gone() const = 0;
  // Called once when that happens, not from inside on_gone() itself.
  virtual void on_gone(std::function<void()> notice) = 0;
};

// Answers one request. Must send an answer or end a stream, unless the client is gone.
using HttpHandler = std::function<boost::asio::awaitable<void>(Exchange&)>;

}  // namespace motley::server
