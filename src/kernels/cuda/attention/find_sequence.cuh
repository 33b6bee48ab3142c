#pragma once

#include <cstdint>

namespace motley::kernels::cuda {

// The last sequence that begins at `row` or before: the one that holds it, for the empty ones
// before it begin there too.
__device__ inline int find_sequence(const std::int32_t* seq_begin, int count, int row) {
  int low = 0;
  int high = count;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (seq_begin[middle] <= row) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

}  // namespace motley::kernels::cuda
