// The kernels, and the roles of their warps.
#pragma once

#include "kernels/cuda/attention/codes.cuh"
#include "kernels/cuda/attention/consume.cuh"
#include "kernels/cuda/attention/few.cuh"
#include "kernels/cuda/attention/instances.h"
#include "kernels/cuda/primitives/launch.cuh"

namespace motley::kernels::cuda::tiles {

template <class S, int query_buffers>
struct Shared {
  Schedule schedule;
  Item items[scheduled_ahead];
  alignas(8) std::uint64_t bars[Rings<S>::bar_count + 2 * query_buffers + 2 * scheduled_ahead];
  int verdict;
};

template <class S>
__device__ inline void start_ring(std::uint32_t bars) {
  constexpr int warps = S::consumers / 32;
  const auto start = [&](std::uint32_t ring, int slots) {
    for (int i = 0; i < slots; ++i) {
      bar_init(ring + i * 8, S::block_arrivals);
      bar_init(ring + (slots + i) * 8, warps);
    }
  };
  start(bars, S::key_slots);
  start(bars + 2 * S::key_slots * 8, S::value_slots);
}

template <class S>
__device__ inline void start_barriers(std::uint32_t bars) {
  constexpr int warps = S::consumers / 32;
  start_ring<S>(bars);
  for (int i = 0; i < S::query_buffers; ++i) {
    bar_init(bars + (Rings<S>::bar_count + i) * 8, 32);
    bar_init(bars + (Rings<S>::bar_count + S::query_buffers + i) * 8, warps);
  }
  const std::uint32_t schedule_bars = bars + (Rings<S>::bar_count + 2 * S::query_buffers) * 8;
  for (int i = 0; i < scheduled_ahead; ++i) {
    bar_init(schedule_bars + i * 8, 1);
    bar_init(schedule_bars + (scheduled_ahead + i) * 8, S::items_taken);
  }
}

template <class S>
__device__ inline void consume(const TileParams& p, TileScheduler scheduler, std::uint32_t data,
                               std::uint32_t bars, int* verdict) {
  const int warpgroup = static_cast<int>(threadIdx.x) / 128;
  QueryRing<S> queries{data, bars + Rings<S>::bar_count * 8};
  Consumer<S> c{.ring = Rings<S>(data + S::query_buffers * S::query_bytes, bars),
                .queries = 0,
                .queries_free = 0,
                .warpgroup = warpgroup,
                .verdict = verdict};
  // the first warpgroup begins
  if (S::ahead && warpgroup == 1) named_barrier_arrive(2, S::consumers);
  for (Item item; scheduler.take(item);) {
    c.queries = queries.block() + (S::halves ? 0 : warpgroup * S::key_panels * query_panel_bytes);
    if constexpr (S::query_warp) {
      bar_wait(queries.full(), queries.parity);
    } else {
      consumers_meet<S>();  // no warp still reads the queries
      load_queries<S, 64, S::consumers>(p, item, queries.block(), static_cast<int>(threadIdx.x));
      copies_commit();
      copies_wait<0>();
      fence_async_shared();
      consumers_meet<S>();
    }
    c.queries_free = queries.free();
    Attend<S> attend(p, item, c);
    attend.run();
    attend.finish();
    if constexpr (S::query_warp) queries.next();
  }
}

// Warp 0 loads keys, warp 1 values. Of latents warp 0 loads all.
template <class S>
__device__ inline void produce(const TileParams& p, TileScheduler items, Rings<S>& ring, int role,
                               std::uint32_t behind_ring) {
  if constexpr (!S::coded) fence_async_all();  // bulk copies read what earlier grids wrote
  const bool keys = role == 0 || S::latent;
  if (role > 0 && S::latent) return;
  for (Item item; items.take(item);) {
    if (keys) {
      if constexpr (S::coded) {
        produce_codes<S, true>(p, item, ring.keys, 0, behind_ring);
      } else {
        produce_boxes<S, true>(p, item, ring.keys);
      }
    } else if constexpr (!S::latent) {
      if constexpr (S::coded) {
        produce_codes<S, false>(p, item, ring.values, 0, behind_ring + S::unit_bytes);
      } else {
        produce_boxes<S, false>(p, item, ring.values);
      }
    }
  }
}

template <class S>
__global__ void __launch_bounds__(S::threads, 1)
    attend_tiles(const __grid_constant__ TileParams p) {
  extern __shared__ unsigned char dynamic[];
  __shared__ Shared<S, S::query_buffers> shared;
  const std::uint32_t bars = smem_addr(shared.bars);
  const std::uint32_t data = (smem_addr(dynamic) + 1023) & ~1023U;
  launch_dependents();
  const int warp = __shfl_sync(0xFFFFFFFF, static_cast<int>(threadIdx.x) / 32, 0);
  if (threadIdx.x == 0) {
    start_barriers<S>(bars);
    fence_bar_init();
  }
  // Lengths were written before the step began.
  make_schedule<S>(p, shared.schedule);  // ends with a barrier of all threads
  wait_for_previous_grid();

  const TileScheduler items{shared.items, bars + (Rings<S>::bar_count + 2 * S::query_buffers) * 8};
  if (warp < S::consumers / 32) {
    grow_registers<S::consumer_registers>();
    return consume<S>(p, items, data, bars, &shared.verdict);
  }
  shrink_registers<S::producer_registers>();
  const int role = warp - S::consumers / 32;
  if (role == 3) return schedule_tiles<S>(p, shared.schedule, items);
  TileScheduler own = items;
  Rings<S> ring(data + S::query_buffers * S::query_bytes, bars);
  if (role < 2)
    return produce<S>(p, own, ring, role, data + S::query_buffers * S::query_bytes + S::ring_bytes);
  if constexpr (!S::latent) {
    if (role == 2) {
      QueryRing<S> queries{data, bars + Rings<S>::bar_count * 8};
      for (Item item; own.take(item);) produce_queries<S>(p, item, queries);
    }
  }
}

// An item's queries are loaded during the item before.
template <class S>
__device__ inline void consume_few(const TileParams& p, const Schedule& schedule, Rings<S> ring,
                                   std::uint32_t data, int* verdict) {
  const FewShared<S> shared{data};
  const auto first = static_cast<int>(blockIdx.x);
  const auto blocks = static_cast<int>(gridDim.x);
  int buffer = 0;  // of the current item
  Item item{};
#pragma unroll 1
  for (int index = first; index < schedule.items + blocks; index += blocks) {
    const bool next = index < schedule.items;
    const Item own = item;
    if (next) item = find_item<S>(p, schedule, index);
    if (index == first) {
      wait_for_previous_grid();
    } else {
      copies_wait<0>();
      fence_async_shared();
      consumers_meet<S>();  // all queries have arrived, and no warp reads those of the item before
    }
    if (next)
      load_queries<S, S::rows, S::consumers>(p, item, shared.queries(buffer ^ 1),
                                             static_cast<int>(threadIdx.x));
    copies_commit();
    if (index > first) {
      AttendFew<S> attend(p, own, {ring, shared, verdict}, buffer, schedule.items <= blocks);
      attend.run();
      attend.finish();
    }
    buffer ^= 1;
  }
}

template <class S>
__global__ void __launch_bounds__(S::threads, S::blocks_per_sm)
    attend_few(const __grid_constant__ TileParams p) {
  extern __shared__ unsigned char dynamic[];
  __shared__ Shared<S, 0> shared;
  const std::uint32_t bars = smem_addr(shared.bars);
  const std::uint32_t data = (smem_addr(dynamic) + 1023) & ~1023U;
  launch_dependents();
  const int warp = __shfl_sync(0xFFFFFFFF, static_cast<int>(threadIdx.x) / 32, 0);
  if (threadIdx.x == 0) {
    start_ring<S>(bars);
    fence_bar_init();
  }
  make_schedule<S>(p, shared.schedule);
  // Blocks without an item wait, too: exiting early would only admit grids that compete with the
  // working blocks.
  const auto first = static_cast<int>(blockIdx.x);
  if (first >= shared.schedule.items) return wait_for_previous_grid();

  constexpr int consumer_warps = S::consumers / 32;
  Rings<S> ring(data, bars);
  if (warp < consumer_warps) {
    if constexpr (S::grows) grow_registers<S::consumer_registers>();
    return consume_few<S>(p, shared.schedule, ring, data + S::ring_bytes, &shared.verdict);
  }
  if constexpr (S::grows) shrink_registers<S::producer_registers>();
  const int role = warp - consumer_warps;
  Landing landing;
  for (int index = first; index < shared.schedule.items; index += static_cast<int>(gridDim.x)) {
    const Item item = find_item<S>(p, shared.schedule, index);
    if constexpr (S::coded) {
      const std::uint32_t units = data + S::ring_bytes + S::other_bytes + role * S::unit_bytes;
      if (role < S::copy_warps_each) {
        produce_codes<S, true>(p, item, ring.keys, role, units);
      } else if constexpr (!S::latent) {
        produce_codes<S, false>(p, item, ring.values, role - S::copy_warps_each, units);
      }
    } else if (role < S::copy_warps_each) {
      produce_blocks<S, true>(p, item, ring.keys, landing, role);
    } else if constexpr (!S::latent) {
      produce_blocks<S, false>(p, item, ring.values, landing, role - S::copy_warps_each);
    }
  }
  landing.finish();
}

template <class S>
constexpr int registers_of() {
  if constexpr (requires { S::grows; }) {
    if (!S::grows) return 0;
  }
  return S::consumer_registers * S::consumers + S::producer_registers * (S::threads - S::consumers);
}

template <class S>
Instance instance_of(void (*kernel)(TileParams), bool waits) {
  return {.kernel = kernel,
          .threads = S::threads,
          .shared_bytes = S::shared_bytes,
          .rows = S::rows,
          .blocks_per_sm = S::blocks_per_sm,
          .registers = registers_of<S>(),
          .waits = waits};
}

// Where units are not kept apart, the chunks of a tile wait for each other if no block has two of
// them (AttendFew::finish).
template <int key_width, int value_width, int rows>
Instance few_instance() {
  using S = FewShape<key_width, value_width, rows>;
  return instance_of<S>(attend_few<S>, !S::folds);
}

template <int key_width, int value_width, bool in_units>
Instance many_instance() {
  using S = Shape<key_width, value_width, in_units>;
  return instance_of<S>(attend_tiles<S>, false);
}

template <int key_width, int value_width, int rows>
Instance few_codes_instance() {
  using S = FewCodes<key_width, value_width, rows>;
  return instance_of<S>(attend_few<S>, !S::folds);
}

template <int key_width, int value_width>
Instance many_codes_instance() {
  using S = ManyCodes<key_width, value_width>;
  return instance_of<S>(attend_tiles<S>, false);
}

}  // namespace motley::kernels::cuda::tiles
