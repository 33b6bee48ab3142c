// Adapters in the consumers: the shrink items' products and stores, and the k-steps an adapter adds
// to a tile.
#pragma once

#include "ring.cuh"
#include "work_list.cuh"

namespace expert_layer {

// Two warpgroups that shared a K loop: the first gets the sum (its own half first) and returns
// true; the second is done.
template <int N>
__device__ inline bool add_halves(float (&acc)[1][N / 2], float* halves, int warpgroup) {
  int t = threadIdx.x % 128;
  named_barrier(4, 256);  // the buffer is free again
  if (warpgroup == 1) {
#pragma unroll
    for (int i = 0; i < N / 2; i++) halves[i * 128 + t] = acc[0][i];
  }
  named_barrier(5, 256);
  if (warpgroup == 1) return false;
#pragma unroll
  for (int i = 0; i < N / 2; i++) acc[0][i] += halves[i * 128 + t];
  return true;
}

// A consumer warpgroup with nothing to multiply.
__device__ inline void pass_stages(Ring& ring, int stages) {
  for (int i = 0; i < stages; i++) {
    bar_wait(ring.full_bar(), ring.parity);
    ring.release(ring.slot);
    ring.next();
  }
}

// One adapter's A over a segment's tokens, 128 k a stage: the first warpgroup takes the even blocks
// of 64 k, the second the odd ones, always, so that a row's sum does not depend on its neighbours.
// D's rows 32..63 are not the adapter's and are dropped.
template <class S, int N>
__device__ inline void run_shrink(const LayerParams& p, const Tables& tables, const Item& item,
                                  Ring& ring, float* halves, int warpgroup) {
  bool first = item.kind == kShrinkGateUp;
  int steps = (first ? kHidden : kInner) / 128, lane = threadIdx.x % 32, t = threadIdx.x % 128;
  float acc[1][N / 2] = {};
  for (int kb = 0; kb < steps; kb++) {
    bar_wait(ring.full_bar(), ring.parity);
    uint32_t a = descriptor_low(ring.data());
    uint32_t b = descriptor_low(ring.data() + S::kWeightBytes + warpgroup * N * 128);
    mma_fence();
#pragma unroll
    for (int k = 0; k < 4; k++)
      Mma<N>::template ss<kDesc128B>(acc[0], a + 2 * k, b + 2 * k, kb + k > 0);
    mma_commit();
    mma_wait<1>();
    if (kb > 0) ring.release(ring.before());
    ring.next();
  }
  mma_wait<0>();
  ring.release(ring.before());
  named_barrier(4, 256);
  if (warpgroup == 1 && t >= 64) {
#pragma unroll
    for (int i = 0; i < N / 2; i++) halves[i * 64 + t - 64] = acc[0][i];
  }
  named_barrier(5, 256);
  if (warpgroup == 1) return;
  int adapter = __ffs(item.adapters) - 1, width = first ? 2 * kRank : kRank;
  Bf16* rank = first ? p.lora.gate_up_rank : p.lora.down_rank;
#pragma unroll
  for (int i = 0; i < N / 2; i++) {
    int row = 16 * (t / 32) + lane / 4 + 8 * (i / 2 % 2), col = 8 * (i / 4) + 2 * (t % 4) + i % 2;
    int position = item.start + col;
    if (row < width && col < item.count && tables.adapter_of[position] == adapter)
      rank[position * width + row] =
          __float2bfloat16((acc[0][i] + halves[i * 64 + t % 64]) * p.lora.scale);
  }
  fence_async_all();
  __threadfence();
  named_barrier(1, 128);
  if (t == 0)
    add_release(&(first ? p.lora.gate_up_rank_done : p.lora.down_rank_done)[item.segment], 1);
}

// One adapter a stage: A operand the B images' rows, B operand the rank-space rows, zero where the
// row is not this adapter's. A split tile's warpgroups share gate_up's two steps; down's one step
// is the first's.
template <class S, int N, int kSteps>
__device__ inline void expand(float (&acc)[S::kBlocks][N / 2], uint32_t adapters, Ring& ring,
                              int warpgroup) {
  if (S::kSplit && warpgroup >= kSteps) return pass_stages(ring, __popc(adapters));
  constexpr int kMine = S::kSplit ? 1 : kSteps;  // steps a warpgroup takes
  for (uint32_t rest = adapters; rest != 0; rest &= rest - 1) {
    bar_wait(ring.full_bar(), ring.parity);
    uint32_t a = ring.data() + warpgroup * (S::kSplit ? 2048 : S::kBlocks * kSteps * 2048);
    uint32_t b = ring.data() + S::kWeightBytes + (S::kSplit ? warpgroup * N * 32 : 0);
    a = descriptor_low(a), b = descriptor_low(b);
    mma_fence();
#pragma unroll
    for (int r = 0; r < S::kBlocks; r++)
#pragma unroll
      for (int step = 0; step < kMine; step++)
        Mma<N>::template ss<kDesc32B>(acc[r], a + (r * kSteps + step) * (2048 >> 4),
                                      b + step * (N * 32 >> 4), 1);
    mma_commit();
    mma_wait<0>();
    ring.release(ring.slot);
    ring.next();
  }
}

}  // namespace expert_layer
