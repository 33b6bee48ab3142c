#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

// What a connection hands to the service, and what it gets back: HTTP without sockets.
namespace motley::server {

// The place of an error about the address in a request's first line, which is no field of a body.
inline constexpr std::string_view target_place = "request target";

struct HttpRequest {
  std::string method;
  std::string path;  // of the target, without its query
  std::string authorization;
  std::string content_encoding;
  std::string origin;  // the web page that a browser asks for
  std::string id;      // the client's X-Request-Id where it is fit to be repeated, else one of ours
  std::string peer;    // "127.0.0.1:40000"
  std::string body;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::string body = {};
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
