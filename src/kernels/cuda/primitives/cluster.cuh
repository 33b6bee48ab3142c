// What the blocks of a cluster send each other. A send is counted at a barrier of the block that it
// goes to, which waits for the bytes that it expects: a cluster's own barrier is a fence of all
// memory besides, and waits for what went to global memory before.
#pragma once

#include <cstdint>

namespace motley::kernels::cuda {

// Where another block of the cluster has what this one has at the address, in shared memory both.
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
