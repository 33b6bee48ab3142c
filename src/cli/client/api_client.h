#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <boost/asio/awaitable.hpp>

#include "base/result.h"
#include "net/http_client.h"
#include "net/server_url.h"

namespace motley::cli {

// Concurrent requests to one server with OpenAI's protocol; as of a net::HttpClient, on one
// executor.
class ApiClient {
 public:
  using Take = net::HttpClient::Take;

  // `key` is sent as a bearer token unless it is empty.
  explicit ApiClient(net::ServerUrl url, std::string key = {})
      : http_(std::move(url)), key_(std::move(key)) {}

  // The body of a page.
  boost::asio::awaitable<Result<std::string>> get(std::string path);
  // Sends JSON. An answer other than 200 is an error with the server's message.
  boost::asio::awaitable<Result<void>> post(std::string path, std::string body, Take take);

 private:
  boost::asio::awaitable<Result<std::string>> ask(net::HttpClient::Request request, Take take);

  net::HttpClient http_;
  std::string key_;
};

// The message of an error in OpenAI's shape, or else the begin of the body.
std::string error_text(std::string_view body);

}  // namespace motley::cli
