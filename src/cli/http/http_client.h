#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>

#include "base/result.h"
#include "cli/http/server_url.h"

namespace motley::cli {

// Concurrent requests to one server, on connections that are reused. Runs on the thread of the
// context.
class HttpClient {
 public:
  // `key` is sent as a bearer token unless it is empty.
  HttpClient(boost::asio::io_context& context, ServerUrl url, std::string key = {});
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // Receives the body piece by piece; its error ends the request.
  using Take = std::function<Result<void>(std::string_view piece)>;

  // The body of a page.
  boost::asio::awaitable<Result<std::string>> get(std::string path);
  // Sends JSON. An answer other than 200 is an error with the server's message.
  boost::asio::awaitable<Result<void>> post(std::string path, std::string body, Take take);

  const ServerUrl& url() const { return url_; }

 private:
  struct Line;
  struct Exchange;

  boost::asio::awaitable<Result<std::unique_ptr<Line>>> connect();
  boost::asio::awaitable<Result<void>> begin(Exchange& exchange);
  boost::asio::awaitable<Result<void>> read_body(Exchange& exchange, const Take& take);
  boost::asio::awaitable<Result<void>> answer(Exchange& exchange, const Take& take);
  Error broken(std::string_view doing, std::string_view why) const;

  boost::asio::io_context& context_;
  ServerUrl url_;
  std::string key_;
  std::vector<std::unique_ptr<Line>> idle_;
};

// The message of an error in OpenAI's shape, or else the begin of the body.
std::string error_text(std::string_view body);

}  // namespace motley::cli
