#pragma once

#include <cstdint>

namespace motley::kernels::cuda {

// The last sequence that begins at or before `row`. It is the one that holds the row: empty
// sequences that begin at the same row come before it.
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
