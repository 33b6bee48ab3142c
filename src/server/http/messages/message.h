#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/http/messages/principal.h"
#include "server/http/messages/query.h"

// The interface between connections and the service: HTTP without sockets.
namespace motley::server {

// The place of an error about the target in the request line, as opposed to a field of a body.
inline constexpr std::string_view target_place = "request target";

struct HttpHead {
  std::string method;
  std::string path;  // of the target, without the query
  Query query;
  std::string authorization;
  std::string api_key;  // of X-Api-Key
  std::string content_encoding;
  std::string content_type;
  std::optional<std::uint64_t> content_length = {};  // nothing: not announced
  std::string origin;                                // of the web page that a browser asks for
  std::string host;        // as the client names the server, "example.com:8000"
  bool forwarded = false;  // by a trusted proxy, which says for whom
  bool unix_socket = false;
  std::string id;    // the client's X-Request-Id if it is valid, else generated
  std::string peer;  // "127.0.0.1:40000"
  // The peer's or the forwarded one, for IPv6 its first 64 bits.
  std::string address;
  // The holder of the request's key; null: none, and the address stands for the client.
  std::shared_ptr<const Principal> holder = {};
  bool may_change_server = false;  // for all of its clients

  // By which clients are limited, and take turns.
  const std::string& client() const { return holder ? holder->name : address; }
  std::uint32_t weight() const { return holder ? holder->weight : 1; }
  bool may_use(std::string_view adapter) const { return !holder || holder->may_use(adapter); }
};

struct HttpRequest : HttpHead {
  std::string parameter;  // of the route's path, decoded
  std::string body;
  std::size_t max_body_bytes = 0;  // its limit, before and after decoding
};

// A field of a request's line in the log.
struct LogField {
  // The key is of static storage.
  LogField(std::string_view name, std::string value) : key(name), text(std::move(value)) {}
  LogField(std::string_view name, std::int64_t value)
      : key(name), count(value), kind(Kind::count) {}
  LogField(std::string_view name, double value) : key(name), number(value), kind(Kind::number) {}

  enum class Kind : std::uint8_t { text, count, number };
  std::string_view key;
  std::string text;
  std::int64_t count = 0;
  double number = 0;
  Kind kind = Kind::text;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::string body = {};
  // For the log: why the answer is an error, without any text of a prompt.
  std::string error_code = {};
  std::string error_message = {};
};

// The decision about a request by its header, before any of its body is read.
struct HeadVerdict {
  std::optional<HttpResponse> refusal = {};  // the answer, without reading the body
  std::size_t max_body_bytes = 0;            // that the request may have
  // The handler reads the body itself, piece by piece (Exchange::next_body_piece()).
  bool streams_body = false;
  std::string parameter = {};  // of the route's path
  bool authorized = false;     // by a key: limits by address do not apply to its body
  bool may_change_server = false;
  std::shared_ptr<const Principal> holder = {};  // of that key
};

// Functions, because g++ 12 destroys an aggregate twice that is written inside a co_await
// expression.
HttpResponse json_response(std::string body);
HttpResponse text_response(std::string_view content_type, std::string body);

inline constexpr std::size_t max_request_id_bytes = 128;
// Whether a client's id may be used in our headers and logs: 1 to 128 letters, digits, '-', '_',
// '.' and ':'.
bool is_request_id(std::string_view text);

}  // namespace motley::server
