// The K loop of a consumer warpgroup over weights in bf16.
#pragma once

#include "kernels/cuda/experts/grouped/ring.cuh"

namespace motley::kernels::cuda::grouped {

// `fence`: token rows arrive by cp.async, and the tensor cores see such writes only after a fence.
// `meanwhile()` runs during the second step's products.
template <class S, int N, class Meanwhile>
__device__ inline void multiply_bf16(float (&acc)[S::blocks][N / 2], Ring& ring, int steps,
                                     int warpgroup, bool fence, const Meanwhile& meanwhile) {
  for (int kb = 0; kb < steps; ++kb) {
    bar_wait(ring.full_bar(), ring.parity);
    if (fence) fence_async_shared();
    const std::uint32_t a = descriptor_low(ring.data() + warpgroup * S::blocks * 8192);
    const std::uint32_t b = descriptor_low(ring.data() + S::weight_bytes);
    mma_fence();
#pragma unroll
    for (int atom = 0; atom < S::atoms; ++atom)
#pragma unroll
      for (int k = 0; k < 4; ++k)
#pragma unroll
        for (int r = 0; r < S::blocks; ++r)
          Mma<N>::template ss<swizzle_128>(acc[r], a + (atom + r) * (8192 >> 4) + 2 * k,
                                           b + atom * (N * 128 >> 4) + 2 * k, kb + atom + k > 0);
    mma_commit();
    if (kb == 1) meanwhile();
    mma_wait<1>();
    if (kb > 0) ring.release(ring.before());
    ring.next();
  }
  mma_wait<0>();
  ring.release(ring.before());
}

}  // namespace motley::kernels::cuda::grouped
