// The tile scheduler of kernels for many rows, whose items differ in length: blocks take items one
// by one. One warp fetches ahead and hands items to the other warps of its block.
#pragma once

#include "kernels/cuda/attention/schedule.cuh"
#include "kernels/cuda/primitives/pipeline.cuh"

namespace motley::kernels::cuda::tiles {

constexpr int scheduled_ahead = 3;

// A ring of items in shared memory.
struct TileScheduler : PipelineState {
  Item* items;
  std::uint32_t bars;  // [2][scheduled_ahead]: full, free

  __device__ TileScheduler(Item* ring, std::uint32_t barriers) : items(ring), bars(barriers) {}

  __device__ std::uint32_t full() const { return bars + slot * 8; }
  __device__ std::uint32_t free() const { return bars + (scheduled_ahead + slot) * 8; }
  __device__ void next() { advance(scheduled_ahead); }

  // Called by a whole warp. False: there are no more items.
  __device__ bool take(Item& item) {
    bar_wait(full(), parity);
    item = items[slot];
    __syncwarp();
    if (threadIdx.x % 32 == 0) bar_arrive(free());
    next();
    return item.rows > 0;
  }
  __device__ void put(const Item& item) {
    bar_wait(free(), parity ^ 1);
    if (threadIdx.x % 32 == 0) {
      items[slot] = item;
      bar_arrive(full());
    }
    next();
  }
};

// The scheduling warp. A block's first item is the one of its own number. If there is a counter,
// the next items come from it, and the last block resets it to zero.
template <class S>
__device__ inline void schedule_tiles(const TileParams& p, const Schedule& schedule,
                                      TileScheduler to) {
  const auto blocks = static_cast<int>(gridDim.x);
  int index = static_cast<int>(blockIdx.x);
  while (index < schedule.items) {
    to.put(find_item<S>(p, schedule, index));
    if (p.counter_count == 0) {
      index += blocks;
      continue;
    }
    int asked = 0;
    if (threadIdx.x % 32 == 0) {
      std::int32_t* const counter = p.counters + p.counter_count - 1;
      asked = atomicAdd(counter, 1);
      const int asks = max(schedule.items - blocks, 0) + min(schedule.items, blocks);
      if (asked == asks - 1) *counter = 0;
    }
    index = blocks + __shfl_sync(0xFFFFFFFF, asked, 0);
  }
  Item none{};
  to.put(none);
}

}  // namespace motley::kernels::cuda::tiles
