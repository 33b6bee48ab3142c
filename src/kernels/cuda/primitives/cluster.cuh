// Sends between the blocks of a cluster. A send is counted at a barrier of the receiving block,
// which waits for the bytes it expects. This is cheaper than a cluster barrier, which is also a
// fence of all memory and waits for earlier writes to global memory.
#pragma once

#include <cstdint>

namespace motley::kernels::cuda {

// The address, in another block of the cluster, that corresponds to this block's shared-memory
// address.
__device__ inline uint32_t address_in_rank(uint32_t address, int rank) {
  uint32_t mapped;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank));
  return mapped;
}
__device__ inline void send(uint32_t to, uint32_t bar, uint32_t value) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(to),
      "r"(value), "r"(bar)
      : "memory");
}
__device__ inline void send(uint32_t to, uint32_t bar, uint2 value) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];" ::"r"(
          to),
      "r"(value.x), "r"(value.y), "r"(bar)
      : "memory");
}

}  // namespace motley::kernels::cuda
