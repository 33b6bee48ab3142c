// The sort of a small batch's pairs, done by every block in its own shared memory: no launch, no
// round trip through L2. The same order as plan.cuh's.
#pragma once

#include "layer.cuh"

namespace expert_layer {

constexpr int kInsidePairs = 512, kInsideSegments = kExperts + kInsidePairs / 8;

template <bool kUsed>
struct InsidePlan {};
template <>
struct InsidePlan<true> {
  Segment segments[kInsideSegments];
  int token_of[kInsidePairs], position_of[kInsidePairs];
  int expert_base[kExperts];
  uint8_t counts[kInsidePairs / 32][kExperts];  // of an expert in 32 pairs, then before them
  int warp_sums[8];
  int segment_count;
};

// What adapters add to it.
constexpr int kInsideShrinks = kInsidePairs;
static_assert(kInsideSegments <= 256 && kMaxAdapters <= 32);
template <bool kUsed>
struct InsideLora {};
template <>
struct InsideLora<true> {
  int expert_first[kExperts];  // segment
  uint32_t adapters[kInsideSegments];
  uint16_t shrink_items[kInsideShrinks];
  int8_t adapter_of[kInsidePairs];
  int shrink_count;
};

// By the first warp: the shrink items of every segment.
__device__ inline void list_shrinks(int segments, InsideLora<true>& a) {
  int lane = threadIdx.x % 32, base = 0;
  for (int i = lane; i - lane < segments; i += 32) {
    int n = i < segments ? __popc(a.adapters[i]) : 0, sum = n;
    for (int d = 1; d < 32; d *= 2) {
      int up = __shfl_up_sync(0xFFFFFFFF, sum, d);
      if (lane >= d) sum += up;
    }
    uint32_t rest = n > 0 ? a.adapters[i] : 0;
    for (int j = base + sum - n; rest != 0; j++, rest &= rest - 1)
      a.shrink_items[j] = static_cast<uint16_t>(i | (__ffs(rest) - 1) << 8);
    base += __shfl_sync(0xFFFFFFFF, sum, 31);
  }
  if (lane == 0) a.shrink_count = base;
}

// 384 threads. Also zeroes the flags of the launch after this one.
template <bool kLora>
__device__ inline void make_inside_plan(const LayerParams& p, InsidePlan<true>& s,
                                        InsideLora<kLora>& lora) {
  int t = threadIdx.x, warp = t / 32, lane = t % 32, threads = blockDim.x;
  int chunks = (p.pairs + 31) / 32;
  for (int i = blockIdx.x * threads + t; i < p.flag_count; i += gridDim.x * threads)
    p.next_flags[i] = 0;
  constexpr int kMine = (kInsidePairs / 32 + 11) / 12;
  int expert[kMine], rank[kMine], adapter[kMine];
#pragma unroll
  for (int i = 0; i < kMine; i++) {
    int pair = (warp + 12 * i) * 32 + lane;
    expert[i] = pair < p.pairs ? __ldcg(&p.expert_ids[pair]) : -1;
    if constexpr (kLora)
      adapter[i] = pair < p.pairs ? __ldcg(&p.lora.adapter_of[pair / kTopK]) : -1;
  }
  for (int i = t; i < chunks * kExperts / 4; i += threads)
    reinterpret_cast<int*>(&s.counts[0][0])[i] = 0;
  if constexpr (kLora)
    for (int i = t; i < kInsideSegments; i += threads) lora.adapters[i] = 0;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kMine; i++) {
    uint32_t same = __match_any_sync(0xFFFFFFFF, expert[i]);
    rank[i] = __popc(same & ((1u << lane) - 1));
    if (expert[i] >= 0 && rank[i] == 0) s.counts[warp + 12 * i][expert[i]] = __popc(same);
  }
  __syncthreads();
  int total = 0, segments = 0, pair_sum = 0, segment_sum = 0;
  if (t < kExperts) {
    for (int c = 0; c < chunks; c++) {
      int n = s.counts[c][t];
      s.counts[c][t] = total;
      total += n;
    }
    segments = (total + p.max_width - 1) / p.max_width;
    pair_sum = total, segment_sum = segments;
    for (int d = 1; d < 32; d *= 2) {
      int a = __shfl_up_sync(0xFFFFFFFF, pair_sum, d),
          b = __shfl_up_sync(0xFFFFFFFF, segment_sum, d);
      if (lane >= d) pair_sum += a, segment_sum += b;
    }
    if (lane == 31) s.warp_sums[warp] = pair_sum, s.warp_sums[4 + warp] = segment_sum;
  }
  __syncthreads();
  if (t < kExperts) {
    int start = pair_sum - total, first = segment_sum - segments;
    for (int w = 0; w < warp; w++) start += s.warp_sums[w], first += s.warp_sums[4 + w];
    s.expert_base[t] = start;
    if constexpr (kLora) lora.expert_first[t] = first;
    for (int i = 0; i < segments; i++) {
      int done = i * p.max_width, count = min(total - done, p.max_width);
      s.segments[first + i] = {t, start + done, count, width_for(count)};
    }
    if (t == kExperts - 1) s.segment_count = first + segments;
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kMine; i++) {
    int pair = (warp + 12 * i) * 32 + lane;
    if (expert[i] >= 0) {
      int position = s.expert_base[expert[i]] + s.counts[warp + 12 * i][expert[i]] + rank[i];
      s.token_of[position] = pair / kTopK;
      s.position_of[pair] = position;
      if constexpr (kLora) {
        lora.adapter_of[position] = static_cast<int8_t>(adapter[i]);
        int segment =
            lora.expert_first[expert[i]] + (position - s.expert_base[expert[i]]) / p.max_width;
        if (adapter[i] >= 0) atomicOr(&lora.adapters[segment], 1u << adapter[i]);
      }
    }
  }
  __syncthreads();
  if constexpr (kLora) {
    if (warp == 0) list_shrinks(s.segment_count, lora);
    __syncthreads();
  }
}

}  // namespace expert_layer
