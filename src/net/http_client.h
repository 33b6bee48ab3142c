#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/asio/awaitable.hpp>

#include "base/function_ref.h"
#include "base/result.h"
#include "net/server_url.h"

namespace motley::net {

// Concurrent requests to one server, on connections that are reused. All are sent on one executor,
// of one thread; its context must outlive the client.
class HttpClient {
 public:
  struct Request {
    std::string method = "GET";
    std::string path;
    std::vector<std::pair<std::string, std::string>> headers = {};
    std::string body = {};
  };
  struct Answer {
    int status = 0;
    std::string body;
  };
  // Receives a body piece by piece, none of them empty; its error ends the request.
  using Take = std::function<Result<void>(std::string_view piece)>;

  explicit HttpClient(ServerUrl url);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // With `take`, the body of a 200 goes there, and not into the answer. An answer holds at most
  // 16 MiB: a 200 that has more is an error, and others are read so far. A request may be sent
  // again, if the server closes the connection that an earlier one has used before any of its
  // answer has come: one whose method is not idempotent only if it was not sent completely.
  boost::asio::awaitable<Result<Answer>> send(Request request, Take take = {});

  const ServerUrl& url() const { return url_; }

 private:
  class Line;
  struct Exchange;

  // Receives a body, and says whether more of it is wanted.
  using Sink = FunctionRef<Result<bool>(std::string_view piece)>;

  boost::asio::awaitable<Result<void>> connect(Exchange& exchange);
  boost::asio::awaitable<Result<void>> begin(Exchange& exchange);
  boost::asio::awaitable<Result<void>> read_body(Exchange& exchange, Sink sink);

  ServerUrl url_;
  std::vector<std::shared_ptr<Line>> idle_;
};

}  // namespace motley::net
