// The persistent kernel of the expert layer: one or two consumer warpgroups and one producer
// warpgroup. For small batches every block may sort the pairs itself; else the plan is a launch
// before.
#pragma once

#include <type_traits>

#include "kernels/cuda/experts/grouped/epilogue.cuh"
#include "kernels/cuda/experts/grouped/inside_plan.cuh"
#include "kernels/cuda/experts/grouped/produce_tokens.cuh"
#include "kernels/cuda/experts/grouped/produce_weights.cuh"

namespace motley::kernels::cuda::grouped {

// Registers per thread of producers and consumers. Their sum must not exceed what the launch
// allocated, or setmaxnreg waits forever.
template <int warpgroups, int blocks_per_sm, bool lora>
struct Registers;
template <bool lora>
struct Registers<1, 4, lora> {  // 256 threads: 64 at entry
  static constexpr int producer = 40, consumer = 88;
};
template <bool lora>
struct Registers<1, 3, lora> {  // 80 at entry
  static constexpr int producer = lora ? 64 : 56, consumer = lora ? 96 : 104;
};
template <bool lora>
struct Registers<2, 2, lora> {  // 80 at entry
  static constexpr int producer = lora ? 64 : 48, consumer = lora ? 88 : 96;
};
template <bool lora>
struct Registers<2, 1, lora> {  // 168 at entry
  static constexpr int producer = lora ? 72 : 56, consumer = lora ? 216 : 224;
};

template <class S>
using PlanMemory = std::conditional_t<
    S::inside == 0, NoPlan,
    std::conditional_t<S::lora, InsideLoraPlan<S::inside>, InsidePlan<S::inside>>>;

// `dynamic_memory`: where the stages may begin.
template <class S>
__device__ inline Pipelines pipelines_of(const LaunchParams& l, std::uint32_t dynamic_memory) {
  __shared__ std::uint64_t
      bars[2 * max_stages + 2 * item_slots + permute_lanes + (S::lora ? max_stages : 0)];
  __shared__ Item items[item_slots];
  __shared__ int stage_steps[max_stages];
  Pipelines pipelines;
  Ring& ring = pipelines.ring;
  ring.stages = (dynamic_memory + 1023) & ~1023U;
  ring.depth = l.depth;
  ring.every_lane = S::every_lane;
  ring.steps = stage_steps;
  ring.stage_bytes = S::weight_bytes + l.token_bytes;
  ring.full = smem_addr(bars);
  ring.empty = ring.full + 8 * max_stages;
  pipelines.queue.items = items;
  pipelines.queue.full = ring.empty + 8 * max_stages;
  pipelines.queue.empty = pipelines.queue.full + 8 * item_slots;
  pipelines.permute_bars = pipelines.queue.empty + 8 * item_slots;
  pipelines.grants.bars = pipelines.permute_bars + 8 * permute_lanes;
  pipelines.arrivals = l.gather == Gather::copies ? 64 : S::lora || S::coded_inputs ? 32 : 1;
  return pipelines;
}

// One thread calls it.
template <class S>
__device__ inline void init_barriers(const Pipelines& pipelines, const LaunchParams& l) {
  constexpr int consumer_warps = 4 * S::warpgroups;
  const bool copied = l.gather == Gather::copies;
  // a stage is full when the weights' bytes and the arrivals of the token threads are complete
  for (int i = 0; i < l.depth; ++i) {
    bar_init(pipelines.ring.full + 8 * i, 1 + pipelines.arrivals);
    bar_init(pipelines.ring.empty + 8 * i, S::every_lane ? 32 * consumer_warps : consumer_warps);
  }
  for (int i = 0; S::lora && i < l.depth; ++i) bar_init(pipelines.grants.bars + 8 * i, 1);
  for (int i = 0; i < item_slots; ++i) {
    bar_init(pipelines.queue.full + 8 * i, 1);
    bar_init(pipelines.queue.empty + 8 * i,
             32 * (consumer_warps + (copied ? 2 : 1) + (S::lora ? 1 : 0)));
  }
  for (int i = 0; i < permute_lanes; ++i) bar_init(pipelines.permute_bars + 8 * i, 1);
  fence_bar_init();
}

// Called by all threads. The scratch of the sort shares memory with the stages.
template <class S>
__device__ inline void sort_pairs(const LayerParams& p, const LaunchParams& l, PlanMemory<S>& plan,
                                  unsigned char* stages) {
  make_inside_plan<S::lora>(p, plan, *reinterpret_cast<InsideScratch<S::inside>*>(stages));
  // for the launch that sums experts, if there is one
  if (l.sum || blockIdx.x != 0) return;
  const int t = static_cast<int>(threadIdx.x);
  if (t < p.pairs) p.plan.places[t] = plan.places[t];
  if (t == 0) p.plan.expert_begin[p.experts] = plan.routed;
}

template <class S>
__device__ inline void use_inside_plan(const PlanMemory<S>& plan, Tables& tables) {
  tables = {.tiles = plan.tiles,
            .tokens = plan.tokens,
            .places = plan.places,
            .tile_count = plan.tile_count,
            .routed = plan.routed,
            .slots = plan.slots};
  if constexpr (S::lora) {
    tables.piece_begin = plan.piece_begin;
    tables.pieces = plan.pieces;
    tables.entries[0] = plan.entries[0];
    tables.entries[1] = plan.entries[1];
  }
}

// The plan that an earlier launch made.
__device__ inline void use_launched_plan(const LayerParams& p, Tables& tables) {
  const int tiles = load_l2(&p.plan.tile_begin[p.experts]);
  tables = {.tiles = p.plan.tiles,
            .tokens = p.plan.tokens,
            .places = p.plan.places,
            .tile_count = tiles,
            .routed = load_l2(&p.plan.expert_begin[p.experts]),
            .piece_begin = p.plan.piece_begin,
            .pieces = p.plan.pieces,
            .entries = {p.deltas.entries[0], p.deltas.entries[1]}};
}

// Roles are inlined by force: else the compiler leaves the choice of activation inside the loops of
// some kernels' store_gate_up.
template <class S, int max_width>
__device__ __forceinline__ void run_producer(const LayerParams& p, const LaunchParams& l,
                                             const KernelMaps& maps, const Tables& tables,
                                             Pipelines& pipelines, int role, int ticket) {
  const bool copied = l.gather == Gather::copies;
  pipelines.ring.parity = 1;  // the ring is empty: the first wait on "empty" must pass
  // Bulk copies and tensor maps read token rows that earlier grids wrote.
  if (role > 0) fence_async_all();
  if (role == 0) {
    produce_weights<S>(p, l, tables, pipelines, maps, ticket);
  } else if (S::lora && role == (copied ? 1 : 3)) {
    if constexpr (S::lora) produce_rank_rows<S>(p, tables, pipelines);
  } else if (role >= 2 && copied) {
    if constexpr (S::warpgroups == 2)
      produce_tokens_copied<S, max_width>(p, l, tables, pipelines, maps);
  } else if (role == 2) {
    produce_tokens<S>(p, l, tables, pipelines, maps);
  } else if (role == 1 && l.permute_lanes > 0) {
    if constexpr (!S::small)
      permute_rows(p, tables, l.permute_lanes,
                   pipelines.ring.stages + l.depth * pipelines.ring.stage_bytes,
                   pipelines.permute_bars);
  }
  if (role == 1 && l.sum) clear_unrouted(p);
}

template <class S, int max_width>
__device__ __forceinline__ void run_consumer(const LayerParams& p, const LaunchParams& l,
                                             const Tables& tables, Pipelines& pipelines,
                                             int warpgroup) {
  __shared__ __align__(16) unsigned char store_buffer[S::warpgroups * store_bytes<S>];
  __shared__ unsigned char last[S::warpgroups][max_width];
  ConsumerState s{.ring = pipelines.ring,
                  .buffer = smem_addr(store_buffer) + warpgroup * store_bytes<S>,
                  .last = last[warpgroup],
                  .warpgroup = warpgroup,
                  .copied = l.gather == Gather::copies,
                  .sum = l.sum};
  for (;;) {
    const Item& item = pipelines.queue.front();
    if (item.kind == ItemKind::end) break;
    const int width = item.width;
    if constexpr (S::least_width <= 8)
      if (width == 8) run_tile<S, 8>(p, l, tables, item, s);
    if constexpr (S::least_width <= 16 && max_width >= 16)
      if (width == 16) run_tile<S, 16>(p, l, tables, item, s);
    if constexpr (S::least_width <= 32 && max_width >= 32)
      if (width == 32) run_tile<S, 32>(p, l, tables, item, s);
    if constexpr (max_width >= 64)
      if (width == 64) run_tile<S, 64>(p, l, tables, item, s);
    if constexpr (max_width >= 128)
      if (width == 128) run_tile<S, 128>(p, l, tables, item, s);
    if constexpr (max_width >= 160)
      if (width == 160) run_tile<S, 160>(p, l, tables, item, s);
    pipelines.queue.pop();
  }
  if constexpr (S::signals_late) s.signal(p);
  if constexpr (rounds_h<S>) bulk_store_wait();
}

template <class S, int max_width, int blocks_per_sm>
__global__ void __launch_bounds__(S::threads, blocks_per_sm)
    grouped_kernel(const __grid_constant__ LayerParams p, const __grid_constant__ LaunchParams l,
                   const __grid_constant__ KernelMaps maps) {
  extern __shared__ unsigned char shared[];
  __shared__ PlanMemory<S> plan;
  __shared__ Tables tables;
  const int t = static_cast<int>(threadIdx.x);
  Pipelines pipelines = pipelines_of<S>(l, smem_addr(shared));
  if (t == 0) {
    init_barriers<S>(pipelines, l);
    prefetch_map(&maps.gate_up);
    prefetch_map(&maps.down);
    prefetch_map(&maps.h[0]);
  }
  __syncthreads();
  // In this order, because the shrinks behind gate_up read the plan without waiting for it.
  wait_for_previous_grid();
  launch_dependents();
  constexpr int consumer_warps = 4 * S::warpgroups;
  // Taken ahead of the sort and of the plan's loads, which hide its way to L2 and back.
  const int ticket = t == 32 * consumer_warps ? take_ticket(p, l) : 0;
  for (int i = static_cast<int>(blockIdx.x) * S::threads + t; i < p.counters.count;
       i += static_cast<int>(gridDim.x) * S::threads)
    p.counters.next_run[i] = 0;
  bool inside = false;
  if constexpr (S::inside > 0) {
    inside = l.inside;
    if (inside) sort_pairs<S>(p, l, plan, shared + (pipelines.ring.stages - smem_addr(shared)));
  }
  if (t == 0) {
    if constexpr (S::inside > 0)
      if (inside) use_inside_plan<S>(plan, tables);
    if (!inside) use_launched_plan(p, tables);
  }
  __syncthreads();

  using Budget = Registers<S::warpgroups, blocks_per_sm, S::lora>;
  const int warp = t / 32;
  if (warp >= consumer_warps) {
    shrink_registers<Budget::producer>();
    run_producer<S, max_width>(p, l, maps, tables, pipelines, warp - consumer_warps, ticket);
  } else {
    grow_registers<Budget::consumer>();
    run_consumer<S, max_width>(p, l, tables, pipelines, warp / 4);
  }
}

}  // namespace motley::kernels::cuda::grouped
