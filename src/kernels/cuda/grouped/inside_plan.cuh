// The sort of a small batch's pairs, done by every block in its own shared memory: no launch, no
// round trip through L2. The order of expert_plan.h, where nobody has a label.
#pragma once

#include "kernels/cuda/grouped/layer.cuh"

namespace motley::kernels::cuda::grouped {

// `capacity`: most pairs; 0: the kernel never sorts.
template <int capacity>
struct InsidePlan {
  static constexpr int most_tiles =
      capacity < inside_experts + capacity / 8 ? capacity : inside_experts + capacity / 8;
  ExpertTile tiles[most_tiles];
  int tokens[capacity];
  int places[capacity];
  int slots[capacity];  // of a token: its pairs that have an expert
  int warp_sums[16];
  int tile_count;
  int routed;
};
template <>
struct InsidePlan<0> {};

// Only while it sorts: lies where the ring's stages will be.
template <int capacity>
struct InsideScratch {
  int expert_begin[inside_experts + 1];
  // of an expert in 32 pairs, then before them
  unsigned short counts[capacity / 32][inside_experts + 1];
};

// All threads of a block, at least inside_experts of them.
template <int threads, int capacity>
__device__ inline void make_inside_plan(const LayerParams& p, InsidePlan<capacity>& s,
                                        InsideScratch<capacity>& scratch) {
  constexpr int warps = threads / 32;
  static_assert(warps <= 16 && threads >= inside_experts);
  const int t = static_cast<int>(threadIdx.x);
  const int warp = t / 32;
  const int lane = t % 32;
  const int chunks = (p.pairs + 31) / 32;
  constexpr int mine = (capacity / 32 + warps - 1) / warps;
  int expert[mine];
  int rank[mine];
#pragma unroll
  for (int i = 0; i < mine; ++i) {
    const int pair = (warp + warps * i) * 32 + lane;
    const int id = pair < p.pairs ? __ldcg(&p.ids[pair]) : -1;
    expert[i] = pair >= p.pairs ? -1 : id < 0 || id >= p.experts ? p.experts : id;
  }
  for (int i = t; i < p.tokens; i += threads) s.slots[i] = 0;
  for (int i = t; i < chunks * (inside_experts + 1); i += threads) (&scratch.counts[0][0])[i] = 0;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < mine; ++i) {
    const unsigned same = __match_any_sync(0xFFFFFFFF, expert[i]);
    rank[i] = __popc(same & ((1U << lane) - 1));
    if (expert[i] >= 0 && rank[i] == 0)
      scratch.counts[warp + warps * i][expert[i]] = static_cast<unsigned short>(__popc(same));
  }
  __syncthreads();
  int total = 0;
  int tiles = 0;
  int pair_sum = 0;
  int tile_sum = 0;
  if (t < inside_experts) {
    if (t < p.experts) {
      for (int c = 0; c < chunks; ++c) {
        const int n = scratch.counts[c][t];
        scratch.counts[c][t] = static_cast<unsigned short>(total);
        total += n;
      }
    }
    tiles = (total + p.tile_places - 1) / p.tile_places;
    pair_sum = total;
    tile_sum = tiles;
    for (int d = 1; d < 32; d *= 2) {
      const int a = __shfl_up_sync(0xFFFFFFFF, pair_sum, d);
      const int b = __shfl_up_sync(0xFFFFFFFF, tile_sum, d);
      if (lane >= d) {
        pair_sum += a;
        tile_sum += b;
      }
    }
    if (lane == 31) {
      s.warp_sums[warp] = pair_sum;
      s.warp_sums[8 + warp] = tile_sum;
    }
  }
  __syncthreads();
  if (t < inside_experts) {
    int begin = pair_sum - total;
    int first = tile_sum - tiles;
    for (int w = 0; w < warp; ++w) {
      begin += s.warp_sums[w];
      first += s.warp_sums[8 + w];
    }
    scratch.expert_begin[t] = begin;
    for (int i = 0; i < tiles; ++i) {
      const int done = i * p.tile_places;
      s.tiles[first + i] = {t, begin + done, min(total - done, p.tile_places), 0};
    }
    if (t == inside_experts - 1) {
      s.tile_count = first + tiles;
      s.routed = begin + total;
    }
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < mine; ++i) {
    const int chunk = warp + warps * i;
    const int pair = chunk * 32 + lane;
    if (expert[i] < 0) continue;
    if (expert[i] == p.experts) {
      s.places[pair] = capacity;  // behind every routed place
      continue;
    }
    const int place = scratch.expert_begin[expert[i]] + scratch.counts[chunk][expert[i]] + rank[i];
    const int token = pair / p.top_k;
    s.tokens[place] = token;
    atomicAdd(&s.slots[token], 1);
    s.places[pair] = place;
  }
  fence_async_shared();  // the ring's copies overwrite the scratch
  __syncthreads();
}
static_assert(inside_experts / 32 <= 8);

}  // namespace motley::kernels::cuda::grouped
