#pragma once

#include <cstddef>
#include <cstdint>

namespace motley::server {

// Open and refused connections of a server, for GET /metrics.
struct HttpStats {
  std::size_t connections = 0;
  std::size_t waiting = 0;            // of them, for a request of their client
  std::uint64_t refused_full = 0;     // connections, because there were too many
  std::uint64_t refused_address = 0;  // because there were too many from their address
  std::uint64_t evicted = 0;          // waiting connections that were closed for others
  std::size_t body_bytes = 0;         // memory of request bodies
};

}  // namespace motley::server
