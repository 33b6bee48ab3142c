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

template <class S, int N>
__device__ inline void multiply_int4(float (&acc)[S::blocks][N / 2], Ring& ring, int steps,
                                     int warpgroup, bool fence) {
  const int t = thread_here() % 128;
  const int row = 16 * (t / 32) + t % 32 / 4;
  // k16 steps a batch: while one batch multiplies, the next is decoded into the other fragments
  constexpr int batch = 2;
  std::uint32_t a[2][batch][4];
  for (int kb = 0; kb < steps; ++kb) {
    bar_wait(ring.full_bar(), ring.parity);
    if (fence) fence_async_shared();
    const std::uint32_t b = descriptor_low(ring.data() + S::weight_bytes);
#pragma unroll
    for (int r = 0; r < S::blocks; ++r) {
      const std::uint32_t blob = ring.data() + (warpgroup * S::blocks + r) * S::block_bytes;
      const std::uint32_t scales = blob + 4096 + row * 2;
      __nv_bfloat162 low = load_scale(scales);
      __nv_bfloat162 high = load_scale(scales + 16);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const uint4 v = load_shared_16(blob + h * 2048 + t * 16);
        const std::uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int k = 0; k < 4; k += batch) {
          const int buffer = k / batch;
          if (S::scales == 4 && h + k > 0) {
            low = load_scale(scales + (2 * h + k / 2) * 128);
            high = load_scale(scales + (2 * h + k / 2) * 128 + 16);
          }
#pragma unroll
          for (int i = 0; i < batch; ++i) decode_step(words[k + i], low, high, a[buffer][i]);
          mma_fence();
#pragma unroll
          for (int i = 0; i < batch; ++i)
            Mma<N>::template rs<swizzle_128>(
                acc[r], a[buffer][i], b + h * (N * 128 >> 4) + 2 * (k + i), kb + h + k + i > 0);
          mma_commit();
          mma_wait<1>();
          if (r == 0 && h == 0 && k == 0 && kb > 0) ring.release(ring.before());
        }
      }
    }
    ring.next();
  }
  mma_wait<0>();
  ring.release(ring.before());
}

// The k-steps of a tile's adapters: A operand the images of B, B operand the rows of rank space,
// zeros where a row is another's. A stage that is not full ends them.
template <class S, int N>
__device__ inline void expand(float (&acc)[S::blocks][N / 2], Ring& ring, int warpgroup,
                              bool fence) {
  for (;;) {
    bar_wait(ring.full_bar(), ring.parity);
    const int steps = ring.steps[ring.slot];
    if (steps > 0) {
      if (fence) fence_async_shared();
      const std::uint32_t a =
          descriptor_low(ring.data() + warpgroup * S::blocks * S::delta_steps * 2048);
      const std::uint32_t b = descriptor_low(ring.data() + S::weight_bytes);
      for (int step = 0; step < steps; ++step) {
        mma_fence();
#pragma unroll
        for (int r = 0; r < S::blocks; ++r)
          Mma<N>::template ss<swizzle_32>(acc[r], a + (r * S::delta_steps + step) * (2048 >> 4),
                                          b + step * (N * 32 >> 4), 1);
        mma_commit();
      }
      mma_wait<0>();
    }
    ring.release_read(ring.slot);
    ring.next();
    if (steps < S::delta_steps) return;
  }
}

// A consumer warpgroup with nothing to multiply.
__device__ inline void pass_stages(Ring& ring, int stages) {
  for (int i = 0; i < stages; ++i) {
    bar_wait(ring.full_bar(), ring.parity);
    ring.release(ring.slot);
    ring.next();
  }
}

// All 128 threads of one warpgroup; constant ids, or ptxas reserves all 16 barriers.
__device__ inline void consumer_barrier(int warpgroup) {
  if (warpgroup == 0)
    named_barrier(1, 128);
  else
    named_barrier(2, 128);
}

// One piece's rows of rank space, by the first warpgroup, k in order. D's rows behind the block's
// are not the adapter's and are dropped.
template <class S, int N>
__device__ inline void shrink(const LayerParams& p, const Tables& tables, const Item& item,
                              Ring& ring, int warpgroup, bool fence) {
  const SeamDeltas& seam = p.seam[item.seam()];
  const int steps = ((item.seam() == 0 ? p.hidden : p.inner) + S::shrink_k - 1) / S::shrink_k;
  EntryWalk walk(p, tables, item);
  while (walk.next()) {
    const int rank = walk.rank();
    const int split = walk.split();
    const float scales[2] = {walk.scale(0), walk.scale(1)};
    const int column = walk.column();
    for (int first = 0; first < rank; first += rank_block) {
      if (warpgroup > 0) {
        pass_stages(ring, steps);
        continue;
      }
      const int rows = min(rank_block, rank - first);
      float acc[N / 2] = {};
      for (int kb = 0; kb < steps; ++kb) {
        bar_wait(ring.full_bar(), ring.parity);
        if (fence) fence_async_shared();
        const std::uint32_t a = descriptor_low(ring.data());
        const std::uint32_t b = descriptor_low(ring.data() + S::shrink_tokens);
        mma_fence();
#pragma unroll
        for (int atom = 0; atom < S::shrink_atoms; ++atom)
#pragma unroll
          for (int k = 0; k < 4; ++k)
            Mma<N>::template ss<swizzle_128>(acc, a + atom * rows * (128 >> 4) + 2 * k,
                                             b + atom * (N * 128 >> 4) + 2 * k, kb + atom + k > 0);
        mma_commit();
        mma_wait<1>();
        if (kb > 0) ring.release(ring.before());
        ring.next();
      }
      mma_wait<0>();
      ring.release(ring.before());
      const int t = thread_here() % 128;
      if (t / 32 * 16 >= rows) continue;
      Bf16* const to =
          seam.rank_rows + static_cast<std::size_t>(item.begin) * seam.pitch + column + first;
#pragma unroll
      for (int i = 0; i < N / 2; ++i) {
        const int row = 16 * (t / 32) + t % 32 / 4 + 8 * (i / 2 % 2);
        const int col = 8 * (i / 4) + 2 * (t % 4) + i % 2;
        const float scale = first + row < split ? scales[0] : scales[1];
        if (row < rows && col < item.count)
          to[static_cast<std::size_t>(col) * seam.pitch + row] = __float2bfloat16(acc[i] * scale);
      }
    }
  }
  if (warpgroup > 0) return;
  __threadfence();
  consumer_barrier(0);
  if (thread_here() == 0) add_release(&seam.done[item.tile], 1);
}

}  // namespace motley::kernels::cuda::grouped
