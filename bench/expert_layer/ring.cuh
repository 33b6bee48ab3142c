// The ring of stages between producers and consumers.
#pragma once

#include "layer.cuh"

namespace expert_layer {

// The ring of stages: full barriers (65 arrivals: one with the weights' bytes, 64 of the token
// threads), then empty ones (8 consumer warps).
struct Ring {
  uint32_t stages, full, empty, stage_bytes;
  int depth, slot = 0;
  uint32_t parity = 0;
  __device__ uint32_t data() const { return stages + slot * stage_bytes; }
  __device__ uint32_t full_bar() const { return full + 8 * slot; }
  __device__ uint32_t empty_bar() const { return empty + 8 * slot; }
  __device__ int before() const { return (slot == 0 ? depth : slot) - 1; }
  // By whole consumer warps, one arrival each, behind a wgmma wait: that is warp-wide, and what a
  // lane read from the stage went into products that are done, so every lane's reads are behind it
  // (a __syncwarp here costs int4 decode up to 5 %).
  __device__ void release(int at) const {
    if (threadIdx.x % 32 == 0) bar_arrive(empty + 8 * at);
  }
  __device__ void next() {
    if (++slot == depth) slot = 0, parity ^= 1;
  }
};

}  // namespace expert_layer
