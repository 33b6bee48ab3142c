#pragma once

#include <chrono>
#include <cstddef>

namespace motley::server {

// What a connection reads, and keeps unread, at once.
inline constexpr std::size_t piece_bytes = 16 << 10;
// The same of a body that its route reads piece by piece, such as a pushed adapter: calls and
// copies of small pieces would take most of its time.
inline constexpr std::size_t streamed_piece_bytes = 256 << 10;
// What a client may send in vain: during an answer, and before its connection closes.
inline constexpr std::size_t linger_bytes = 64 << 20;

// Of the limit on open files, what connections leave for others, such as files of adapters: this
// many, but at most this part of it.
inline constexpr std::size_t reserved_descriptors = 1024;
inline constexpr std::size_t reserved_descriptors_part = 4;
// How long running answers may take when the server drains, if its operator says nothing else.
inline constexpr std::chrono::seconds default_drain_time{25};

// Limits of a client. The guide has all bounds of connections and requests in a table
// (docs/guide/operation.md), and bounds_test.cc says what it lacks.
struct HttpLimits {
  // Open at once. The server lowers this to what the system's limit on descriptors allows.
  std::size_t connections = 4096;
  std::size_t address_connections = 2048;  // from one address

  std::size_t header_bytes = 32 << 10;
  std::size_t body_bytes = 16 << 20;
  // Chunk extensions and trailers of one body.
  std::size_t chunk_extra_bytes = 8 << 10;
  // The memory of all requests' bodies that are being read or answered.
  std::size_t all_bodies_bytes = std::size_t{512} << 20;
  // Of that, for bodies from one address without a key.
  std::size_t address_bodies_bytes = std::size_t{128} << 20;
  // What a client may send after a request that is being answered, before reading stops.
  std::size_t pipelined_bytes = 64 << 10;
  // Bytes of a stream that wait because its client is slower than the engine. As many again may be
  // in the current write.
  std::size_t stream_backlog_bytes = 16 << 20;
  // A longer answer is sent in chunks while it is made.
  std::size_t whole_answer_bytes = 1 << 20;

  // From a request's first byte, or the begin of the connection, to the last byte.
  std::chrono::nanoseconds request_time = std::chrono::seconds(30);
  // A client must read write_progress_bytes of an answer in each interval of this length.
  std::chrono::nanoseconds write_time = std::chrono::seconds(30);
  std::size_t write_progress_bytes = 16 << 10;
  std::chrono::nanoseconds idle_time = std::chrono::seconds(75);  // between requests
  // For the rest of a partly sent request when the server drains.
  std::chrono::nanoseconds drain_request_time = std::chrono::seconds(2);
  // For what a client still sends after an answer that left bytes unread; when the server drains.
  std::chrono::nanoseconds linger_time = std::chrono::seconds(2);
  std::chrono::nanoseconds drain_linger_time = std::chrono::milliseconds(500);
};

}  // namespace motley::server
