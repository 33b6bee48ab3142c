#pragma once

#include <chrono>
#include <cstddef>

namespace motley::server {

// What a client may cost.
struct HttpLimits {
  std::size_t header_bytes = 32 << 10;
  std::size_t body_bytes = 16 << 20;
  // Of all requests that are being read or answered, together.
  std::size_t all_bodies_bytes = std::size_t{512} << 20;
  // What a client may send behind a request that is being answered before we stop reading.
  std::size_t pipelined_bytes = 64 << 10;
  // From a request's first byte, or the connection's beginning, to its last.
  std::chrono::nanoseconds request_time = std::chrono::seconds(30);
  std::chrono::nanoseconds write_time = std::chrono::seconds(30);  // of one piece of an answer
  std::chrono::nanoseconds idle_time = std::chrono::seconds(75);   // between requests
};

}  // namespace motley::server
