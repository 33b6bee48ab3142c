// What adapters add to a consumer warpgroup's work: shrinks, which make rows of rank space, and the
// k-steps of expands behind a tile's own.
#pragma once

#include "kernels/cuda/grouped/ring.cuh"
#include "kernels/cuda/grouped/widen.cuh"

namespace motley::kernels::cuda::grouped {

// All 128 threads of one warpgroup; constant ids, or ptxas reserves all 16 barriers.
__device__ inline void consumer_barrier(int warpgroup) {
  if (warpgroup == 0)
    named_barrier(1, 128);
  else
    named_barrier(2, 128);
}

// FP8 becomes bf16 where it stands, by one warpgroup, so that one path multiplies both: a tile of
// 64 rows x 16 columns of B, its rows' scales behind it.
__device__ inline void widen_b_tile(std::uint32_t tile, int warpgroup) {
  const int t = thread_here() % 128;
  const uint2 eight = load_shared_8(tile + t * 8);
  const __nv_bfloat162 scale = __float2bfloat162_rn(load_shared_f32(tile + 1024 + t / 2 * 4));
  consumer_barrier(warpgroup);
  store_shared_16(tile + swizzled(t / 2, t % 2, 32), widen_f8_x8(eight, scale));
}

// ... and a stage's rows of A, without their scales.
template <class S>
__device__ inline void widen_a_stage(std::uint32_t stage, int rows, int warpgroup) {
  constexpr int most = rank_block * 4 * S::shrink_atoms / 128;  // chunks of 16 numbers, a thread
  const int t = thread_here() % 128;
  const int chunks = rows * 4 * S::shrink_atoms;
  const __nv_bfloat162 one = __float2bfloat162_rn(1.0F);
  uint4 numbers[most];
#pragma unroll
  for (int i = 0; i < most; ++i) {
    const int chunk = t + 128 * i;
    if (chunk < chunks) numbers[i] = load_shared_16(stage + swizzled(chunk / 4, chunk % 4, 64));
  }
  consumer_barrier(warpgroup);
#pragma unroll
  for (int i = 0; i < most; ++i) {
    const int chunk = t + 128 * i;
    if (chunk >= chunks) break;
    const uint4 v = numbers[i];
    store_shared_16(stage + swizzled(chunk / 4, chunk % 4 * 2, 128),
                    widen_f8_x8(make_uint2(v.x, v.y), one));
    store_shared_16(stage + swizzled(chunk / 4, chunk % 4 * 2 + 1, 128),
                    widen_f8_x8(make_uint2(v.z, v.w), one));
  }
  fence_async_shared();
  consumer_barrier(warpgroup);
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
      const std::uint32_t tiles = ring.data() + warpgroup * S::blocks * S::delta_steps * 2048;
      if constexpr (S::f8) {
        for (int r = 0; r < S::blocks; ++r)
          for (int step = 0; step < steps; ++step)
            widen_b_tile(tiles + (r * S::delta_steps + step) * 2048, warpgroup);
        fence_async_shared();
        consumer_barrier(warpgroup);
      }
      const std::uint32_t a = descriptor_low(tiles);
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

// `rows` of A times the token rows of `steps` stages, k in order. D's rows behind them are
// nobody's.
template <class S, int N>
__device__ inline void shrink_pass(float (&acc)[N / 2], Ring& ring, int steps, int rows,
                                   bool fence) {
  for (int kb = 0; kb < steps; ++kb) {
    bar_wait(ring.full_bar(), ring.parity);
    if (fence) fence_async_shared();
    if constexpr (S::f8) widen_a_stage<S>(ring.data(), rows, 0);
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
}

// One piece's rows of rank space, by the first warpgroup, rank_block columns at a time.
template <class S, int N>
__device__ inline void shrink(const LayerParams& p, const Tables& tables, const Item& item,
                              Ring& ring, int warpgroup, bool fence) {
  const SeamDeltas& seam = p.seam[item.seam()];
  const int in = item.seam() == 0 ? p.hidden : p.inner;
  const int steps = (in + S::shrink_k - 1) / S::shrink_k;
  EntryWalk walk(p, tables, item);
  while (walk.next()) {
    const int rank = walk.rank();
    const int split = walk.split();
    const float scales[2] = {walk.scale(0), walk.scale(1)};
    const int column = walk.column();
    const float* const row_scales = S::f8 ? a_scales(walk.a(), in, rank) : nullptr;
    for (int first = 0; first < rank; first += rank_block) {
      if (warpgroup > 0) {
        pass_stages(ring, steps);
        continue;
      }
      const int rows = min(rank_block, rank - first);
      float acc[N / 2] = {};
      shrink_pass<S, N>(acc, ring, steps, rows, fence);
      const int t = thread_here() % 128;
      if (t / 32 * 16 >= rows) continue;
      Bf16* const to =
          seam.rank_rows + static_cast<std::size_t>(item.begin) * seam.pitch + column + first;
      float scale[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = first + 16 * (t / 32) + t % 32 / 4 + 8 * half;
        scale[half] = row < split ? scales[0] : scales[1];
        if (S::f8 && row < rank) scale[half] *= __ldcg(row_scales + row);
      }
#pragma unroll
      for (int i = 0; i < N / 2; ++i) {
        const int row = 16 * (t / 32) + t % 32 / 4 + 8 * (i / 2 % 2);
        const int col = 8 * (i / 4) + 2 * (t % 4) + i % 2;
        if (row < rows && col < item.count)
          to[static_cast<std::size_t>(col) * seam.pitch + row] =
              __float2bfloat16(acc[i] * scale[i / 2 % 2]);
      }
    }
  }
  if (warpgroup > 0) return;
  consumer_barrier(0);
  if (thread_here() == 0) add_release(&seam.done[item.tile], 1);
}

}  // namespace motley::kernels::cuda::grouped
