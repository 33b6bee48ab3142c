#pragma once

#include <cstdint>

#include "base/function_ref.h"

namespace motley::kernels::cuda {

// Ranks that each compute the rows in rank space of gate and up for some places, and gather the
// others'. The bits are those of one rank that computes all.
struct SharedShrink {
  int rank = 0;
  int ranks = 1;    // 1: this rank computes all rows
  int columns = 0;  // of a row that the step's adapters have: a multiple of 16
  // Queues what fills in the parts of the other ranks: all have as many bytes, in order of ranks.
  const FunctionRef<void(void* parts, std::int64_t bytes)>* gather = nullptr;

  bool is_shared() const { return ranks > 1; }
};

}  // namespace motley::kernels::cuda
