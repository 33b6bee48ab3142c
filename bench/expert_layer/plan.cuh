// Sorts the (token, expert) pairs by expert, stable, and cuts each expert's run into segments.
// Blocks of 1024 pairs: the first kernel counts experts a block, the second turns counts into
// places. With one block the second does it all. Expert ids must be valid here; the product adds a
// bucket for those that are not.
#pragma once

#include "combine.cuh"

namespace expert_layer {

constexpr int kPlanThreads = 1024;

__global__ void __launch_bounds__(kPlanThreads) plan_count(LayerParams p) {
  __shared__ int counts[kExperts];
  wait_for_previous_grid();
  int t = threadIdx.x;
  if (t < kExperts) counts[t] = 0;
  __syncthreads();
  int pair = blockIdx.x * kPlanThreads + t;
  if (pair < p.pairs) atomicAdd(&counts[p.expert_ids[pair]], 1);
  __syncthreads();
  if (t < kExperts) p.plan.block_counts[blockIdx.x * kExperts + t] = counts[t];
  launch_dependents();
}

// Exclusive sum over the first 128 threads (4 warps); every thread of the block calls it.
__device__ inline int scan_128(int value, int* warp_sums) {
  int t = threadIdx.x, lane = t % 32, sum = value;
  for (int d = 1; d < 32; d *= 2) {
    int up = __shfl_up_sync(0xFFFFFFFF, sum, d);
    if (lane >= d) sum += up;
  }
  if (t < 128 && lane == 31) warp_sums[t / 32] = sum;
  __syncthreads();
  int before = 0;
  for (int w = 0; w < 4; w++) before += w < t / 32 ? warp_sums[w] : 0;
  __syncthreads();
  return before + sum - value;
}

__global__ void __launch_bounds__(kPlanThreads) plan_scatter(LayerParams p) {
  __shared__ int warp_counts[kPlanThreads / 32][kExperts];
  __shared__ int expert_base[kExperts];
  __shared__ int warp_sums[4];
  launch_dependents();
  int t = threadIdx.x, warp = t / 32, lane = t % 32, pair = blockIdx.x * kPlanThreads + t;
  for (int i = t; i < kPlanThreads / 32 * kExperts; i += kPlanThreads)
    warp_counts[i / kExperts][i % kExperts] = 0;
  wait_for_previous_grid();
  __syncthreads();
  int expert = pair < p.pairs ? p.expert_ids[pair] : -1;
  uint32_t same = __match_any_sync(0xFFFFFFFF, expert);
  int rank = __popc(same & ((1u << lane) - 1));
  if (expert >= 0 && rank == 0) warp_counts[warp][expert] = __popc(same);
  // nothing below is read before this launch: zero the flags of the layer
  int id = blockIdx.x * kPlanThreads + t, stride = gridDim.x * kPlanThreads;
  for (int i = id; i < p.flag_count; i += stride) p.plan.next_item[i] = 0;
  __syncthreads();
  int total = 0, before = 0;
  if (t < kExperts) {
    int mine = 0;
    for (int w = 0; w < kPlanThreads / 32; w++) {
      int c = warp_counts[w][t];
      warp_counts[w][t] = mine;
      mine += c;
    }
    if (gridDim.x == 1)
      total = mine;
    else
      for (int b = 0; b < static_cast<int>(gridDim.x); b++) {
        int c = p.plan.block_counts[b * kExperts + t];
        total += c;
        before += b < static_cast<int>(blockIdx.x) ? c : 0;
      }
  }
  int start = scan_128(total, warp_sums);
  if (t < kExperts) expert_base[t] = start + before;
  int segments = (total + p.max_width - 1) / p.max_width;
  int first = scan_128(segments, warp_sums);
  if (blockIdx.x == 0 && t < kExperts) {
    for (int i = 0; i < segments; i++) {
      int done = i * p.max_width, count = min(total - done, p.max_width);
      p.plan.segments[first + i] = {t, start + done, count, width_for(count)};
    }
    if (t == kExperts - 1) *p.plan.segment_count = first + segments;
  }
  if (expert >= 0) {
    int position = expert_base[expert] + warp_counts[warp][expert] + rank;
    p.plan.token_of[position] = pair / kTopK;
    p.plan.position_of[pair] = position;
  }
}

// One block a token, one 16-byte chunk a thread.
__global__ void __launch_bounds__(kHidden / 8) combine(LayerParams p) {
  launch_dependents();
  wait_for_previous_grid();
  combine_chunk(p, p.plan.position_of, blockIdx.x, threadIdx.x * 8);
}

}  // namespace expert_layer
