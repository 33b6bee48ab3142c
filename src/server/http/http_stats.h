#pragma once

#include <cstddef>
#include <cstdint>

namespace motley::server {

// What a server has open, and what it has turned away; for GET /metrics.
struct HttpStats {
  std::size_t connections = 0;
  std::uint64_t refused_full = 0;     // connections where there were too many
  std::uint64_t refused_address = 0;  // where there were too many from their address
  std::uint64_t evicted = 0;          // silent ones that were closed for others
  std::size_t body_bytes = 0;         // that bodies of requests hold
};

}  // namespace motley::server
