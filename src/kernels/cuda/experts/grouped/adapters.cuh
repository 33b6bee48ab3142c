// What adapters add to a consumer warpgroup's work: shrinks, which compute rank rows, and the k16
// steps of expands after a tile's own k.
#pragma once

#include "kernels/cuda/experts/grouped/ring.cuh"
#include "kernels/cuda/experts/grouped/widen.cuh"
#include "kernels/cuda/primitives/tensor_core.cuh"

namespace motley::kernels::cuda::grouped {

// FP8: a warpgroup converts a k16 step of 64 rows of B to bf16 in place, times the scales of the
// rows, which follow their numbers.
__device__ inline void widen_b(std::uint32_t tile, int warpgroup) {
  const int t = thread_here() % 128;
  std::uint32_t numbers[2];
  load_shared_words(numbers, tile + t * 8);
  const float scale = load_shared_f32(tile + 1024 + t / 2 * 4);
  consumer_barrier(warpgroup);
  store_shared_16(tile + swizzled(t / 2, t % 2, 32),
                  widen_f8_x8(make_uint2(numbers[0], numbers[1]), __float2bfloat162_rn(scale)));
}

// The same for all of a warpgroup's tiles in a stage, before products read them. A call: inlined,
// it would take registers from the loops around it.
template <class S>
__device__ __noinline__ void widen_stage_of_b(std::uint32_t tiles, int steps, int warpgroup) {
#pragma unroll 1
  for (int step = 0; step < steps; ++step, tiles += 2048)
#pragma unroll
    for (int r = 0; r < S::blocks; ++r) widen_b(tiles + r * (S::delta_steps * 2048), warpgroup);
  fence_async_shared();
}

// FP8: the first warpgroup converts a stage's rows of A to bf16 in place, without their scales.
template <class S>
__device__ inline void widen_stage_of_a(std::uint32_t stage, int rows) {
  const int t = thread_here() % 128;
  const __nv_bfloat162 one = __float2bfloat162_rn(1.0F);
  // From the last on, so that no place is written before it is read.
#pragma unroll 1
  for (int first = (rows * 4 * S::shrink_atoms - 1) / 128 * 128; first >= 0; first -= 128) {
    const int chunk = first + t;
    const bool mine = chunk < rows * 4 * S::shrink_atoms;
    uint4 v{};
    if (mine) v = load_shared_16(stage + swizzled(chunk / 4, chunk % 4, 64));
    consumer_barrier(0);
    if (!mine) continue;
    store_shared_16(stage + swizzled(chunk / 4, chunk % 4 * 2, 128),
                    widen_f8_x8(make_uint2(v.x, v.y), one));
    store_shared_16(stage + swizzled(chunk / 4, chunk % 4 * 2 + 1, 128),
                    widen_f8_x8(make_uint2(v.z, v.w), one));
  }
  fence_async_shared();
  consumer_barrier(0);
}

// The k16 steps of a tile's adapters. The A operand is packed B, the B operand the rows in rank
// space, with zeros for rows of other labels.
template <class S, int N>
__device__ inline void expand(float (&acc)[S::blocks][N / 2], Ring& ring, int warpgroup,
                              bool f8_factors) {
  for (bool last = false; !last;) {
    bar_wait(ring.full_bar(), ring.parity);
    last = ring.steps[ring.slot] >= last_steps;
    const int steps = ring.steps[ring.slot] % last_steps;
    fence_async_shared();  // rank rows arrive by cp.async
    const std::uint32_t tiles = ring.data() + warpgroup * S::blocks * S::delta_steps * 2048;
    const std::uint32_t b = descriptor_low(ring.data() + S::weight_bytes);
    if (f8_factors) {
      widen_stage_of_b<S>(tiles, steps, warpgroup);
      consumer_barrier(warpgroup);
    }
    const std::uint32_t a = descriptor_low(tiles);
    for (int step = 0; step < steps; ++step) {
      mma_fence();
#pragma unroll
      for (int r = 0; r < S::blocks; ++r)
        Mma<N>::template ss<swizzle_32>(acc[r], a + (r * S::delta_steps + step) * (2048 >> 4),
                                        b + step * (N * 32 >> 4), 1);
      mma_commit();
      if constexpr (S::coded_inputs) mma_wait<0>();
    }
    mma_wait<0>();
    ring.release_read(ring.slot);
    ring.next();
  }
}

// The same for kernels in which each warp multiplies base weights by itself (multiply_int4_few).
template <class S, int N>
__device__ inline void expand_few(float (&acc)[S::blocks][N / 2], Ring& ring, int warpgroup,
                                  bool f8_factors) {
  const int t = thread_here() % 128;
  const int lane = t % 32;
  const std::uint32_t tiles = warpgroup * S::blocks * S::delta_steps * 2048;
  const std::uint32_t own_a = tiles + swizzled(t / 32 * 16 + lane % 16, lane / 16, 32);
  // N = 8: the last two 8 x 8 blocks belong to the next step
  const std::uint32_t own_b =
      S::weight_bytes + (N == 8 ? lane / 16 * 256 : 0) +
      swizzled(N == 8 ? lane % 8 : lane % 8 + lane / 16 * 8, lane / 8 % 2, 32);
  for (bool last = false; !last;) {
    bar_wait(ring.full_bar(), ring.parity);
    last = ring.steps[ring.slot] >= last_steps;
    const int steps = ring.steps[ring.slot] % last_steps;
    const std::uint32_t stage = ring.data();
    if (f8_factors) {
      widen_stage_of_b<S>(stage + tiles, steps, warpgroup);
      __syncwarp();  // a warp reads the rows that it has written
    }
    std::uint32_t b[4];
#pragma unroll
    for (int step = 0; step < S::delta_steps; ++step) {
      if (step >= steps) break;
      if (N == 16 || step % 2 == 0) load_matrix_x4(b, stage + own_b + step * (N * 32));
#pragma unroll
      for (int r = 0; r < S::blocks; ++r) {
        std::uint32_t a[4];
        load_matrix_x4(a, stage + own_a + (r * S::delta_steps + step) * 2048);
#pragma unroll
        for (int n = 0; n < N / 8; ++n) {
          const int at = N == 8 ? step % 2 * 2 : 2 * n;
          multiply_add(*reinterpret_cast<float(*)[4]>(&acc[r][4 * n]), a[0], a[1], a[2], a[3],
                       b[at], b[at + 1]);
        }
      }
    }
    ring.release_read(ring.slot);
    ring.next();
  }
}

// The second warpgroup's work while the first one shrinks: letting stages go.
__device__ inline void pass_shrink(Ring& ring, int steps) {
  for (int kb = 0; kb < steps; ++kb) {
    bar_wait(ring.full_bar(), ring.parity);
    ring.release_read(ring.slot);
    ring.next();
  }
}

// Multiplies `rows` rows of A by the token rows of `steps` stages, in the order of k. Rows of D
// beyond `rows` are undefined.
template <class S, int N>
__device__ inline void shrink_pass(float (&acc)[N / 2], Ring& ring, int steps, int rows, bool fence,
                                   bool f8_factors) {
  for (int kb = 0; kb < steps; ++kb) {
    bar_wait(ring.full_bar(), ring.parity);
    if (fence) fence_async_shared();
    if (f8_factors) widen_stage_of_a<S>(ring.data(), rows);
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

// Stores up to rank_block ranks of a piece's rows, from `first` on, times the term's scale.
template <class S, int N>
__device__ inline void store_ranks(const float (&acc)[N / 2], const LayerParams& p,
                                   const Item& item, const DeltaEntry& term, int first) {
  const SeamDeltas& seam = p.seam[item.seam()];
  const int rows = min(rank_block, term.rank - first);
  const int t = thread_here() % 128;
  if (t / 32 * 16 >= rows) return;
  Bf16* const to =
      seam.rank_rows + static_cast<std::size_t>(item.begin) * seam.pitch + term.column + first;
  float scale[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = first + 16 * (t / 32) + t % 32 / 4 + 8 * half;
    scale[half] = row < term.split ? term.scale[0] : term.scale[1];
    if (p.f8_factors && row < term.rank)
      scale[half] *=
          __ldcg(a_scales(term.a, item.seam() == 0 ? p.hidden : p.inner, term.rank) + row);
  }
#pragma unroll
  for (int j = 0; j < N / 2; ++j) {
    const int row = 16 * (t / 32) + t % 32 / 4 + 8 * (j / 2 % 2);
    const int col = 8 * (j / 4) + 2 * (t % 4) + j % 2;
    if (row < rows && col < item.count)
      to[static_cast<std::size_t>(col) * seam.pitch + row] =
          __float2bfloat16(acc[j] * scale[j / 2 % 2]);
  }
}

// Computes one piece's rank rows, rank_block columns at a time, in the first warpgroup.
template <class S, int N>
__device__ inline void shrink(const LayerParams& p, const Tables& tables, const Item& item,
                              ConsumerState& s) {
  const int in = item.seam() == 0 ? p.hidden : p.inner;
  const int steps = (in + S::shrink_k - 1) / S::shrink_k;
  const bool fence = s.copied && item.seam() == 0;
  const DeltaEntry* const terms =
      tables.entries[item.seam()] + static_cast<std::size_t>(item.first_piece) * p.deltas.max_terms;
  for (int i = 0; i < p.deltas.max_terms; ++i) {
    const int rank = terms[i].rank;
    if (rank == 0) break;
    for (int first = 0; first < rank; first += rank_block) {
      const int rows = min(rank_block, rank - first);
      if (s.warpgroup > 0) {
        if constexpr (S::warpgroups == 2) pass_shrink(s.ring, steps);
        continue;
      }
      float acc[N / 2] = {};
      shrink_pass<S, N>(acc, s.ring, steps, rows, fence, p.f8_factors);
      store_ranks<S, N>(acc, p, item, terms[i], first);
    }
  }
  if (s.warpgroup > 0) return;
  consumer_barrier(0);
  if (thread_here() == 0) add_release(&p.seam[item.seam()].done[item.tile], 1);
}

}  // namespace motley::kernels::cuda::grouped
