// Clusters of two blocks that share what they load: each loads a half for both.
#pragma once

#include <cstdint>

#include <cuda.h>

namespace motley::kernels::cuda {

__device__ inline void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::
                   : "memory");
}

// A box that arrives at the same shared address in both blocks, and counts at both barriers.
__device__ inline void tma_2d_for_both(std::uint32_t dst, const CUtensorMap* map, int col, int row,
                                       std::uint32_t bar) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast"
      "::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(dst),
      "l"(map), "r"(col), "r"(row), "r"(bar), "h"(static_cast<std::uint16_t>(3))
      : "memory");
}

// Arrives at a barrier of another block, whose address is from address_in_rank() (cluster.cuh). It
// orders nothing but this thread's own reads: a release for the cluster would wait for all memory,
// 2 us each time.
__device__ inline void arrive_in_cluster(std::uint32_t bar) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(bar) : "memory");
}

}  // namespace motley::kernels::cuda
