#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace motley::cli {

// A measured step of another server: a row of bench/peers.csv.
struct PeerCase {
  std::string_view shape;
  std::string_view format;  // of experts
  std::int64_t layers = 0;
  std::int64_t sequences = 0;
  std::int64_t tokens = 0;  // of each sequence: 1 for decoding, with 1024 before it
  int adapters = 0;         // of rank 16 on attention and experts
  std::string_view card;    // the name of the GPU that our step ran on
};

// vLLM's time for it, if it was measured on this card: forward pass, head and sampling, which steps
// of `motley bench` exclude.
std::optional<double> peer_ms(const PeerCase& wanted);

}  // namespace motley::cli
