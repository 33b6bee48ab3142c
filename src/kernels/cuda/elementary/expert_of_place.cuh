#pragma once

#include <cstdint>

namespace motley::kernels::cuda {

// The expert whose places include this one; `expert_begin` are [experts + 1] places.
__device__ inline int expert_of_place(const std::int32_t* expert_begin, int experts, int place) {
  int low = 0;
  int high = experts;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (expert_begin[middle] <= place ? low : high) = middle;
  }
  return low;
}

}  // namespace motley::kernels::cuda
