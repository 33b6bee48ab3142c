#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "cli/http_answer.h"
#include "cli/load/url_target.h"

namespace motley::cli {

// One request on a connection of its own, and its answer as it comes. Only moves.
class HttpPeer {
 public:
  // Connects and asks; an empty body is a GET.
  static Result<HttpPeer> ask(const ServerUrl& server, std::string_view path,
                              std::string_view body = {});
  HttpPeer(HttpPeer&& other) noexcept
      : socket_(std::exchange(other.socket_, -1)), answer_(std::move(other.answer_)) {}
  HttpPeer& operator=(HttpPeer&& other) noexcept;
  HttpPeer(const HttpPeer&) = delete;
  HttpPeer& operator=(const HttpPeer&) = delete;
  ~HttpPeer();

  // For poll().
  int descriptor() const { return socket_; }
  // Takes the bytes that are there, waiting for the first ones.
  Result<void> take_some();
  HttpAnswer& answer() { return answer_; }

 private:
  explicit HttpPeer(int socket) : socket_(socket) {}

  int socket_;
  HttpAnswer answer_;
};

// The whole body of an answer; its error where the server refuses.
Result<std::string> fetch(const ServerUrl& server, std::string_view path);

// What a server says of a request that it refuses: the message in {"error": {"message"}}, else the
// status.
Error refusal(int status, std::string_view body);

}  // namespace motley::cli
