// The expert layer's persistent kernel. 384 threads: two consumer warpgroups and one of producers.
// Tiles of 64 or 128 rows (decode): every block sorts the pairs, up to kInsidePairs, for itself,
// and token rows are gathered. Tiles of 256 rows (prefill): the sort is a launch of its own, and
// token rows are permuted in the background or copied.
#pragma once

#include "inside_plan.cuh"
#include "producer.cuh"

namespace expert_layer {

constexpr int kThreads = 384;

template <class S, int kMaxWidth, int kBlocksPerSm>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    expert_layer_kernel(const __grid_constant__ LayerParams p,
                        const __grid_constant__ LaunchParams l,
                        const __grid_constant__ KernelMaps maps) {
  constexpr bool kInside = S::kInside;
  extern __shared__ uint8_t shared[];
  __shared__ uint64_t bars[2 * kMaxStages + 2 * kItemSlots + kPermuteLanes];
  __shared__ Item items[kItemSlots];
  __shared__ __align__(16) uint8_t store_buffer[8 * 768];
  __shared__ uint8_t last[2][kMaxWidth];
  __shared__ float halves[S::kSplit || S::kLora ? kMaxWidth / 2 * 128 : 1];
  __shared__ int row_offset[kInside ? 1 : kMaxWidth];
  __shared__ InsidePlan<kInside> plan;
  __shared__ InsideLora<S::kLora> lora;
  int t = threadIdx.x, warp = t / 32, lane = t % 32;
  bool copied = !kInside && l.gather;
  Ring ring;
  ring.stages = smem_addr(shared) + 1023 & ~1023u;
  ring.depth = l.depth;
  ring.stage_bytes = S::kWeightBytes + l.token_bytes;
  ring.full = smem_addr(bars);
  ring.empty = ring.full + 8 * kMaxStages;
  ItemQueue queue;
  queue.items = items;
  queue.full = ring.empty + 8 * kMaxStages;
  queue.empty = queue.full + 8 * kItemSlots;
  uint32_t permute_bars = queue.empty + 8 * kItemSlots;
  if (t == 0) {
    // a stage is full with the weights' bytes and the token threads' arrivals
    for (int i = 0; i < l.depth; i++)
      bar_init(ring.full + 8 * i, copied ? 65 : 2), bar_init(ring.empty + 8 * i, 8);
    for (int i = 0; i < kItemSlots; i++)
      bar_init(queue.full + 8 * i, 1), bar_init(queue.empty + 8 * i, 32 * (copied ? 10 : 9));
    for (int i = 0; i < kPermuteLanes; i++) bar_init(permute_bars + 8 * i, 1);
    fence_bar_init();
    prefetch_map(&maps.gate_up);
    prefetch_map(&maps.down);
    prefetch_map(&maps.act);
  }
  __syncthreads();
  wait_for_previous_grid();
  launch_dependents();
  if (t == 0) trace(p, kStarted);
  Tables tables;
  if constexpr (kInside) {
    make_inside_plan<S::kLora>(p, plan, lora);
    tables = {plan.segments, plan.token_of, plan.position_of, plan.segment_count};
    if constexpr (S::kLora) {
      tables.adapter_of = lora.adapter_of, tables.adapters = lora.adapters;
      tables.shrink_items = lora.shrink_items, tables.shrink_count = lora.shrink_count;
    }
  } else {
    tables = {p.plan.segments, p.plan.token_of, p.plan.position_of, *p.plan.segment_count};
  }

  if (t == 0) trace(p, kPlanned);

  if (warp >= 8) {
    shrink_registers<kBlocksPerSm == 1 ? 56 : kBlocksPerSm == 2 ? 48 : 40>();
    ring.parity = 1;  // an empty ring: the first wait on "empty" must pass
    if (warp == 8) {
      if (lane == 0) produce_weights<S>(p, l, tables, queue, ring, maps);
    } else if (copied) {
      if constexpr (!kInside)
        if (warp >= 10)
          produce_tokens_copied<S, kMaxWidth>(p, tables, queue, ring, row_offset, maps);
    } else if (warp == 10) {
      produce_tokens<S>(p, tables, queue, ring, maps);
    } else if (!kInside && warp == 9 && l.permute_lanes > 0 && l.phase != kOnlyDown) {
      permute_rows(p, l.permute_lanes, ring.stages + l.depth * ring.stage_bytes, permute_bars);
    }
  } else {
    if constexpr (kBlocksPerSm == 1) {
      grow_registers<224>();
    } else if constexpr (kBlocksPerSm == 2) {
      grow_registers<96>();
    } else {
      grow_registers<64>();
    }
    ConsumerState s{ring,           smem_addr(store_buffer) + warp * 768,
                    last[warp / 4], halves,
                    warp / 4,       l.combine_inline,
                    copied};
    for (;;) {
      const Item& item = queue.front();
      if (item.kind == kEnd) break;
      int width = item.width;
      if (width == 8) run_tile<S, 8>(p, tables, item, s);
      if (width == 16) run_tile<S, 16>(p, tables, item, s);
      if constexpr (kMaxWidth >= 32)
        if (width == 32) run_tile<S, 32>(p, tables, item, s);
      if constexpr (kMaxWidth >= 64)
        if (width == 64) run_tile<S, 64>(p, tables, item, s);
      if constexpr (kMaxWidth >= 128)
        if (width == 128) run_tile<S, 128>(p, tables, item, s);
      if constexpr (kMaxWidth >= 160)
        if (width == 160) run_tile<S, 160>(p, tables, item, s);
      queue.pop();
    }
  }
}

}  // namespace expert_layer
