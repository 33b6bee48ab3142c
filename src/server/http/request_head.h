#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "server/http/message.h"

namespace motley::server {

// A request's head, and what it says of the bytes behind it.
struct RequestHead {
  HttpHead head;  // without the peer
  bool http_1_0 = false;
  bool keep_alive = false;
  bool expects_continue = false;
  bool chunked = false;
  std::uint64_t content_length = 0;

  bool has_body() const { return chunked || content_length > 0; }
};

// What the client wrote is no HTTP that we take.
Error malformed_request(std::string_view what);

// Reads what HeadScanner has found complete. Refuses whatever leaves a doubt about where the body
// ends: Transfer-Encoding beside Content-Length, in HTTP/1.0 or other than "chunked", and a
// Content-Length that is repeated or no plain number.
Result<RequestHead> parse_head(std::string_view bytes);

}  // namespace motley::server
