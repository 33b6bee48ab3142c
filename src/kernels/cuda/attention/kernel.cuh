// Who plays which role.
#pragma once

#include "kernels/cuda/attention/consume.cuh"
#include "kernels/cuda/attention/instances.h"
#include "kernels/cuda/launch.cuh"

namespace motley::kernels::cuda::tiles {

template <class S>
struct Shared {
  Schedule schedule;
  alignas(8) std::uint64_t bars[4 * S::stages + 2 * S::query_buffers];
  int verdict;
};

template <class S>
__device__ inline void start_barriers(std::uint32_t bars) {
  constexpr int warps = S::consumers / 32;
  for (int i = 0; i < S::stages; ++i) {
    bar_init(bars + i * 8, S::latent ? 64 : 32);
    bar_init(bars + (S::stages + i) * 8, warps);
    bar_init(bars + (2 * S::stages + i) * 8, 32);
    bar_init(bars + (3 * S::stages + i) * 8, warps);
  }
  for (int i = 0; i < S::query_buffers; ++i) {
    bar_init(bars + (4 * S::stages + i) * 8, S::query_threads);
    bar_init(bars + (4 * S::stages + S::query_buffers + i) * 8, warps);
  }
  fence_bar_init();
}

template <class S>
__device__ inline void consume(const TileParams& p, Shared<S>& shared, std::uint32_t data,
                               std::uint32_t bars) {
  const int warpgroup = static_cast<int>(threadIdx.x) / 128;
  QueryRing<S> queries{data, bars + 4 * S::stages * 8};
  Consumer<S> c{.ring = {data + S::query_buffers * S::query_bytes, bars},
                .queries = 0,
                .sums = data + S::query_buffers * S::query_bytes + S::stages * S::stage_bytes,
                .warpgroup = warpgroup,
                .verdict = &shared.verdict};
  for (int index = static_cast<int>(blockIdx.x); index < shared.schedule.items;
       index += static_cast<int>(gridDim.x)) {
    const Item item = find_item<S>(p, shared.schedule, index);
    c.queries = queries.queries() + (S::latent ? 0 : warpgroup * S::key_panels * panel_bytes);
    if constexpr (S::query_warps) {
      bar_wait(queries.full(), queries.parity);
    } else {
      consumers_meet<S>();  // nobody reads the queries before
      load_queries<S, S::consumers, 2>(p, item, queries.queries(), static_cast<int>(threadIdx.x));
      fence_async_shared();
      consumers_meet<S>();
    }
    Attend<S> attend(p, item, c);
    attend.run();
    if constexpr (S::query_warps) {
      release(queries.free());
      queries.next();
    }
    attend.finish();
  }
}

template <class S>
__global__ void __launch_bounds__(S::threads, S::blocks_per_sm)
    attend_tiles(const __grid_constant__ TileParams p) {
  extern __shared__ unsigned char dynamic[];
  __shared__ Shared<S> shared;
  const std::uint32_t bars = smem_addr(shared.bars);
  const std::uint32_t data = (smem_addr(dynamic) + 1023) & ~1023U;
  launch_dependents();
  const int warp = __shfl_sync(0xFFFFFFFF, static_cast<int>(threadIdx.x) / 32, 0);
  if (threadIdx.x == 0) start_barriers<S>(bars);
  wait_for_previous_grid();
  make_schedule<S>(p, shared.schedule);  // ends with all threads in step

  if (warp < S::consumers / 32) {
    if constexpr (S::grows) grow_registers<S::consumer_registers>();
    consume<S>(p, shared, data, bars);
  } else {
    if constexpr (S::grows) shrink_registers<S::producer_registers>();
    const int role = warp - S::consumers / 32;
    const Ring<S> ring{data + S::query_buffers * S::query_bytes, bars};
    if (S::latent ? role < S::copy_warps : role == 0) {
      produce_blocks<S, true>(p, shared.schedule, ring, role);
    } else if (!S::latent && role == 1) {
      if constexpr (!S::latent) produce_blocks<S, false>(p, shared.schedule, ring, role);
    } else if constexpr (S::query_warps) {
      produce_queries<S>(p, shared.schedule, {data, bars + 4 * S::stages * 8},
                         static_cast<int>(threadIdx.x) - S::consumers - 32 * S::copy_warps);
    }
  }
}

template <class S>
Instance instance() {
  return {.kernel = attend_tiles<S>,
          .threads = S::threads,
          .shared_bytes = S::shared_bytes,
          .rows = S::rows,
          .most_rows = S::most_rows,
          .blocks_per_sm = S::blocks_per_sm};
}

}  // namespace motley::kernels::cuda::tiles
