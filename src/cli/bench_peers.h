#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace motley::cli {

// What was measured of another server: a step of a shape.
struct PeerCase {
  std::string_view shape;
  std::string_view format;  // of experts
  std::int64_t layers = 0;
  std::int64_t sequences = 0;
  std::int64_t tokens = 0;  // of a sequence in a step: 1 where it decodes, behind 1024
  int adapters = 0;         // of rank 16 on attention and experts
};

// Milliseconds of vLLM 0.26.0 on one H200 (2026-11-21), if the case was measured: forward, head and
// sampling. Steps of `motley bench` don't sample.
std::optional<double> peer_ms(const PeerCase& wanted);

}  // namespace motley::cli
