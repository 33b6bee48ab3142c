// Where a thread stands in a ring of slots, each of which has a barrier that says full and one that
// says free.
#pragma once

#include <cstdint>

namespace motley::kernels::cuda {

struct PipelineState {
  int slot = 0;
  std::uint32_t parity = 0;  // of the phase that the slot's barriers are in

  __device__ void advance(int slots) {
    if (++slot == slots) {
      slot = 0;
      parity ^= 1;
    }
  }
};

}  // namespace motley::kernels::cuda
