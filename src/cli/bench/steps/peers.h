#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace motley::cli {

// A step that was measured of another server: a row of bench/peers.csv.
struct PeerCase {
  std::string_view shape;
  std::string_view format;  // of experts
  std::int64_t layers = 0;
  std::int64_t sequences = 0;
  std::int64_t tokens = 0;  // of each sequence: 1 where it decodes, behind 1024
  int adapters = 0;         // of rank 16 on attention and experts
};

// What vLLM took for it, if it was measured: forward, head and sampling, which steps of `motley
// bench` leave out.
std::optional<double> peer_ms(const PeerCase& wanted);

}  // namespace motley::cli
