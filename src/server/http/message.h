#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// What a connection hands to the service, and what it gets back: HTTP without sockets.
namespace motley::server {

// The place of an error about the address in a request's first line, which is no field of a body.
inline constexpr std::string_view target_place = "request target";

struct HttpHead {
  std::string method;
  std::string path;  // of the target, without its query
  std::string authorization;
  std::string api_key;  // of X-Api-Key
  std::string content_encoding;
  std::string origin;  // the web page that a browser asks for
  std::string host;    // the server as the client calls it, "example.com:8000"
  std::string id;      // the client's X-Request-Id where it is fit to be repeated, else one of ours
  std::string peer;    // "127.0.0.1:40000"
  std::string address;  // that limits by client count by: the peer's, of IPv6 the first 64 bits
};

struct HttpRequest : HttpHead {
  std::string body;
  std::size_t max_body_bytes = 0;  // that it may have, however it is coded
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::string body = {};
};

// What becomes of a request, decided on its head before any of its body is read.
struct HeadVerdict {
  std::optional<HttpResponse> refusal = {};  // the answer; the body is not read
  std::size_t max_body_bytes = 0;            // that the request may have
  bool authorized = false;                   // by a key: no limit by address holds for its body
};

// Made by functions, because g++ 12 destroys an aggregate that is written out inside a co_await
// expression twice.
HttpResponse json_response(std::string body);
HttpResponse text_response(std::string_view content_type, std::string body);

// Whether a client's id may stand in our headers and logs: 1 to 128 letters, digits, '-', '_', '.'
// and ':'.
bool is_request_id(std::string_view text);

// 32 hexadecimal digits, different for each call.
std::string new_request_id();

}  // namespace motley::server
