// A thread's position in a ring of slots, each of which has a full and an empty barrier.
#pragma once

#include <cstdint>

namespace motley::kernels::cuda {

struct PipelineState {
  int slot = 0;
  std::uint32_t parity = 0;  // of the current phase of the slot's barriers

  __device__ void advance(int slots) {
    if (++slot == slots) {
      slot = 0;
      parity ^= 1;
    }
  }
};

}  // namespace motley::kernels::cuda
