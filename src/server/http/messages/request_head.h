#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "server/http/messages/message.h"
#include "server/http/messages/trusted_proxies.h"

namespace motley::server {

// A request's header, and how its body is delimited.
struct RequestHead {
  HttpHead head;  // without the peer
  ForwardedFields forwarded;
  bool http_1_0 = false;
  bool keep_alive = false;
  bool expects_continue = false;
  bool chunked = false;
  std::uint64_t content_length = 0;

  bool has_body() const { return chunked || content_length > 0; }
};

// An error for a request that is not valid HTTP.
Error malformed_request(std::string_view what);

// Parses a header that HeadScanner has found complete. Refuses whatever makes the end of the body
// ambiguous: Transfer-Encoding together with Content-Length, in HTTP/1.0 or other than "chunked",
// and a Content-Length that is repeated or no plain number.
Result<RequestHead> parse_head(std::string_view bytes);

}  // namespace motley::server
