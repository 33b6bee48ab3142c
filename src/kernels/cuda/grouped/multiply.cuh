// The K loops of a consumer warpgroup: base weights in bf16 or int4, and what adapters add.
#pragma once

#include "kernels/cuda/grouped/ring.cuh"

namespace motley::kernels::cuda::grouped {

// Eight int4 of one k16 step to the A fragment, bf16(q x scale): (w >> 4j) & 0xF beside 0x4300 is
// 128 + n exactly, n - 8 exact.
__device__ inline void decode_step(std::uint32_t w, __nv_bfloat162 low, __nv_bfloat162 high,
                                   std::uint32_t (&a)[4]) {
  const std::uint32_t magic = 0x43004300;
  const std::uint32_t offset = 0x43084308;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    std::uint32_t x;
    asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(x) : "r"(w >> 4 * j), "n"(0x000F000F), "r"(magic));
    __nv_bfloat162 q = __hsub2(*reinterpret_cast<__nv_bfloat162*>(&x),
                               *reinterpret_cast<const __nv_bfloat162*>(&offset));
    q = __hmul2(q, j % 2 ? high : low);
    a[j] = *reinterpret_cast<std::uint32_t*>(&q);
  }
}

// `fence`: token rows come by cp.async, whose writes the tensor cores see only behind a fence.
template <class S, int N>
__device__ inline void multiply_bf16(float (&acc)[S::blocks][N / 2], Ring& ring, int steps,
                                     int warpgroup, bool fence) {
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
    mma_wait<1>();
    if (kb > 0) ring.release(ring.before());
    ring.next();
  }
  mma_wait<0>();
  ring.release(ring.before());
}

__device__ inline __nv_bfloat162 load_scale(std::uint32_t address) {
  const std::uint32_t both = load_shared_u16(address) * 0x10001U;
  return *reinterpret_cast<const __nv_bfloat162*>(&both);
}

// Half a blob as a thread needs it: four k16 steps.
struct Int4Half {
  uint4 words;
  __nv_bfloat162 low, high;  // scales of its two rows

  template <class S>
  __device__ void load(std::uint32_t blob, int half, int t, int row) {
    words = load_shared_16(blob + half * 2048 + t * 16);
    if (S::scales == 1 && half > 0) return;
    load_scales<S>(blob, 2 * half, row);
  }
  // Of the group that k16 steps from 2 x `pair` on belong to.
  template <class S>
  __device__ void load_scales(std::uint32_t blob, int pair, int row) {
    const std::uint32_t at = blob + 4096 + (S::scales == 1 ? 0 : pair * 128) + row * 2;
    low = load_scale(at);
    high = load_scale(at + 16);
  }
};

template <class S, int N>
__device__ inline void multiply_int4(float (&acc)[S::blocks][N / 2], Ring& ring, int steps,
                                     int warpgroup, bool fence) {
  const int t = thread_here() % 128;
  const int row = 16 * (t / 32) + t % 32 / 4;
  const auto blob_of = [&](int r) {
    return ring.data() + (warpgroup * S::blocks + r) * S::block_bytes;
  };
  // k16 steps a batch: while one batch multiplies, the next is decoded into the other fragments
  constexpr int batch = 2;
  std::uint32_t a[2][batch][4];
  Int4Half now;
  bar_wait(ring.full_bar(), ring.parity);
  now.load<S>(blob_of(0), 0, t, row);
  for (int kb = 0; kb < steps; ++kb) {
    if (fence) fence_async_shared();
    const std::uint32_t b = descriptor_low(ring.data() + S::weight_bytes);
#pragma unroll
    for (int r = 0; r < S::blocks; ++r) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const std::uint32_t words[4] = {now.words.x, now.words.y, now.words.z, now.words.w};
#pragma unroll
        for (int k = 0; k < 4; k += batch) {
          const int buffer = k / batch;
          if (S::scales == 4 && k > 0) now.load_scales<S>(blob_of(r), 2 * h + 1, row);
#pragma unroll
          for (int i = 0; i < batch; ++i)
            decode_step(words[k + i], now.low, now.high, a[buffer][i]);
          mma_fence();
#pragma unroll
          for (int i = 0; i < batch; ++i)
            Mma<N>::template rs<swizzle_128>(
                acc[r], a[buffer][i], b + h * (N * 128 >> 4) + 2 * (k + i), kb + h + k + i > 0);
          mma_commit();
          const bool first = r == 0 && h == 0 && k == 0;
          if (k + batch == 4) {
            // The next half comes while these products run.
            if (h == 0) {
              now.load<S>(blob_of(r), 1, t, row);
            } else if (r + 1 < S::blocks) {
              now.load<S>(blob_of(r + 1), 0, t, row);
            } else {
              ring.next();
              if (kb + 1 < steps) {
                bar_wait(ring.full_bar(), ring.parity);
                now.load<S>(blob_of(0), 0, t, row);
              }
            }
          }
          mma_wait<1>();
          if (first && kb > 0) ring.release(ring.before());
        }
      }
    }
  }
  mma_wait<0>();
  ring.release(ring.before());
}

}  // namespace motley::kernels::cuda::grouped
