#pragma once

#include <chrono>
#include <cstddef>

namespace motley::server {

// What a client may cost.
struct HttpLimits {
  // Open at once. The server lowers the first to what the system's limit on descriptors leaves.
  std::size_t connections = 4096;
  std::size_t address_connections = 2048;  // from one address

  std::size_t header_bytes = 32 << 10;
  std::size_t body_bytes = 16 << 20;
  // Extensions of chunks and trailers of one body.
  std::size_t chunk_extra_bytes = 8 << 10;
  // Memory that the bodies of all requests hold, of those being read or answered.
  std::size_t all_bodies_bytes = std::size_t{512} << 20;
  // Of that, for the bodies from one address that no key vouches for.
  std::size_t address_bodies_bytes = std::size_t{128} << 20;
  // What a client may send behind a request that is being answered before we stop reading.
  std::size_t pipelined_bytes = 64 << 10;
  // Tokens of a stream that wait because its client is slower than the engine. As much again may be
  // in the writing.
  std::size_t stream_backlog_bytes = 16 << 20;
  // A longer answer goes out in chunks while it is made.
  std::size_t whole_answer_bytes = 1 << 20;

  // From a request's first byte, or the connection's beginning, to its last.
  std::chrono::nanoseconds request_time = std::chrono::seconds(30);
  // In so much time a client that is being sent to must take so many bytes.
  std::chrono::nanoseconds write_time = std::chrono::seconds(30);
  std::size_t write_progress_bytes = 16 << 10;
  std::chrono::nanoseconds idle_time = std::chrono::seconds(75);  // between requests
  // For the rest of a request that is half sent when the server drains.
  std::chrono::nanoseconds drain_request_time = std::chrono::seconds(2);
};

}  // namespace motley::server
