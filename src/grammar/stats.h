#pragma once

#include <cstdint>

namespace motley::grammar {

// Grammars and their helper processes; each member has a row in engine/stats/metrics.h.
struct Stats {
  std::uint64_t queued = 0;       // to be compiled
  std::uint64_t helpers = 0;      // processes, each with one grammar
  std::uint64_t started = 0;      // helpers
  std::uint64_t compiled = 0;     // grammars
  std::uint64_t refused = 0;      // of those that were begun
  std::uint64_t failed_time = 0;  // helpers that took too long
  std::uint64_t failed_memory = 0;
  std::uint64_t failed_crash = 0;
  std::uint64_t failed_rejected = 0;  // tokens that a mask allowed and its grammar refused
};

}  // namespace motley::grammar
