// The producer of weights, which also chooses the items. One thread.
#pragma once

#include "kernels/cuda/experts/grouped/ring.cuh"

namespace motley::kernels::cuda::grouped {

// Loads the rows of A of a piece's terms, one stage of k at a time, rank_block rows after
// rank_block rows. Only the leading lane waits: another one that is late could take a later phase
// of a stage for its own, and wait for ever.
template <class S>
__device__ inline void produce_shrink_weights(const LayerParams& p, const Tables& tables,
                                              const Item& item, Ring& ring) {
  const int in = item.seam() == 0 ? p.hidden : p.inner;
  const int steps = (in + S::shrink_k - 1) / S::shrink_k;
  const unsigned number_bytes = p.f8_factors ? 1 : 2;
  const std::size_t row_bytes = static_cast<std::size_t>((in + 127) / 128) * 128 * number_bytes;
  const bool leads = threadIdx.x % 32 == 0;
  EntryWalk walk(p, tables, item);
  while (walk.next()) {
    const int rank = walk.rank();
    const unsigned char* const a = walk.a();
    for (int first = 0; first < rank; first += rank_block) {
      const unsigned bytes = static_cast<unsigned>(min(rank_block, rank - first)) * 64 *
                             S::shrink_atoms * number_bytes;
      const unsigned char* from = a + first * row_bytes;
      for (int kb = 0; kb < steps; ++kb, from += bytes) {
        if (leads) {
          bar_wait(ring.empty_bar(), ring.parity);
          bar_expect(ring.full_bar(), bytes);
          bulk_copy(ring.data(), from, bytes, ring.full_bar());
        }
        ring.next();
      }
    }
  }
}

// Loads packed B of a tile's adapters, delta_steps k16 steps per stage. In FP8 the scales of 64
// rows follow their numbers.
template <class S>
__device__ inline void produce_expand_weights(const LayerParams& p, StepWalk& walk,
                                              const Item& item, Ring& ring) {
  constexpr int row_blocks = S::rows / 64;
  const int own = static_cast<int>(threadIdx.x) % 32;
  const unsigned tile_bytes = 64 * 16 * (p.f8_factors ? 1 : 2);
  const unsigned scale_bytes = p.f8_factors ? 64 * sizeof(float) : 0;
  const int rows = item.kind == ItemKind::gate_up ? 2 * p.inner : p.hidden;
  const int b_tiles = (rows + 255) / 256 * 4;
  const std::size_t block = static_cast<std::size_t>(item.row_tile) * row_blocks + own % row_blocks;
  for (int left = walk.count(), stages = delta_stages<S>(left); stages > 0; --stages) {
    const int steps = min(left, S::delta_steps);
    left -= steps;
    const unsigned char* from = nullptr;
    int scales = 0;  // bytes of row scales, at `from`'s end
    for (int step = 0; step < steps; ++step) {
      walk.next();
      const unsigned char* const b = walk.entry().b();
      if (own / row_blocks != step) continue;
      const int tile = static_cast<int>(block) * walk.steps() + walk.step();
      from = b + tile * tile_bytes;
      scales = (b_tiles * walk.steps() - tile) * 1024 + static_cast<int>(block) * 256;
    }
    bar_wait(ring.empty_bar(), ring.parity);
    if (own == 0) {
      ring.steps[ring.slot] = steps + (stages == 1 ? last_steps : 0);
      bar_expect(ring.full_bar(),
                 static_cast<unsigned>(row_blocks * steps) * (tile_bytes + scale_bytes));
    }
    __syncwarp();
    if (own < row_blocks * steps) {
      const std::uint32_t to =
          ring.data() + (own % row_blocks * S::delta_steps + own / row_blocks) * 2048;
      bulk_copy(to, from, tile_bytes, ring.full_bar());
      if (p.f8_factors) bulk_copy(to + tile_bytes, from + scales, scale_bytes, ring.full_bar());
    }
    ring.next();
  }
}

// Loads a tile's base weights, by the leading lane. It waits only for free stages.
template <class S>
__device__ inline void produce_base_weights(const LayerParams& p, const Item& item, Ring& ring,
                                            const KernelMaps& maps) {
  const bool first = item.kind == ItemKind::gate_up;
  const int rows = first ? 2 * p.inner : p.hidden;
  const int steps = ((first ? p.hidden : p.down_columns) + S::stage_k - 1) / S::stage_k;
  if constexpr (S::bf16) {
    const CUtensorMap* const map = first ? &maps.gate_up : &maps.down;
    const int row = item.expert * rows + item.row_tile * S::rows;
    constexpr int box_rows = S::rows < 128 ? 64 : 128;
    for (int kb = 0; kb < steps; ++kb) {
      bar_wait(ring.empty_bar(), ring.parity);
      bar_expect(ring.full_bar(), S::weight_load);
#pragma unroll
      for (int r = 0; r < S::rows; r += box_rows)
        tma_2d(ring.data() + r * 128, map, kb * S::stage_k, row + r, ring.full_bar());
      ring.next();
    }
  } else {
    // blobs are [expert][128 rows][128 k]; a tile past the end reads its last rows twice
    const int row_pairs = (rows + 127) / 128;
    const unsigned char* const packed =
        (first ? p.gate_up : p.down) +
        static_cast<std::size_t>(item.expert) * row_pairs * steps * (2 * S::block_bytes);
    for (int kb = 0; kb < steps; ++kb) {
      bar_wait(ring.empty_bar(), ring.parity);
      bar_expect(ring.full_bar(), S::weight_load);
      if constexpr (S::coded_inputs) {
        // A stage has all rows' codes, then their scales.
        constexpr int rows = S::rows < 128 ? S::rows : 128;
        constexpr int first_scale = S::layout.code_bytes();
#pragma unroll
        for (int r = 0; r < S::rows; r += rows) {
          const int row = item.row_tile * S::rows + r;
          const std::size_t pair = min(row / 128, row_pairs - 1);
          const unsigned char* const from = packed + (pair * steps + kb) * S::layout.bytes();
          bulk_copy(ring.data() + r * 128, from + row % 128 * 128, rows * 128, ring.full_bar());
          bulk_copy(ring.data() + S::rows * 128 + r * 4, from + first_scale + row % 128 * 4,
                    rows * 4, ring.full_bar());
        }
      } else if constexpr (S::rows < 128) {
        const std::size_t pair = item.row_tile / 2;
        bulk_copy(ring.data(),
                  packed + ((pair * steps + kb) * 2 + item.row_tile % 2) * S::block_bytes,
                  S::block_bytes, ring.full_bar());
      } else {
#pragma unroll
        for (int r = 0; r < S::rows / 128; ++r) {
          const std::size_t pair = min(item.row_tile * (S::rows / 128) + r, row_pairs - 1);
          bulk_copy(ring.data() + r * 2 * S::block_bytes,
                    packed + (pair * steps + kb) * (2 * S::block_bytes), 2 * S::block_bytes,
                    ring.full_bar());
        }
      }
      ring.next();
    }
  }
}

// The number of the next item that no block has taken. Blocks take all their items by ticket, the
// first one too: a block that waits for an item then waits for a running block, however many of
// the grid's blocks are resident.
__device__ inline int take_ticket(const LayerParams& p, const LaunchParams& l) {
  return atomicAdd(&p.counters.next_item[l.phase == Phase::down ? 1 : 0], 1);
}

// Run by one warp; without adapters by one lane of it. `ticket`: the leading lane's first.
template <class S>
__device__ inline void produce_weights(const LayerParams& p, const LaunchParams& l,
                                       const Tables& tables, Pipelines& pipelines,
                                       const KernelMaps& maps, int ticket) {
  const bool leads = threadIdx.x % 32 == 0;
  if (!S::lora && !leads) return;
  Ring& ring = pipelines.ring;
  const ItemList<S> items(tables, l);
  for (;;) {
    if constexpr (S::lora) ticket = __shfl_sync(0xFFFFFFFF, ticket, 0);
    const Item item = items.at(ticket);
    if (leads) pipelines.queue.put(item);
    if (item.kind == ItemKind::end) return;
    if (leads) ticket = take_ticket(p, l);
    if constexpr (S::lora) {
      if constexpr (S::shrinks) {
        if (item.shrinks()) {
          produce_shrink_weights<S>(p, tables, item, ring);
          continue;
        }
      }
      StepWalk walk(p, tables, item);
      if (leads) produce_base_weights<S>(p, item, ring, maps);
      // the other lanes advance in the ring, too
      __syncwarp();
      ring.slot = __shfl_sync(0xFFFFFFFF, ring.slot, 0);
      ring.parity = __shfl_sync(0xFFFFFFFF, ring.parity, 0);
      if (item.first_piece < item.last_piece) produce_expand_weights<S>(p, walk, item, ring);
    } else {
      produce_base_weights<S>(p, item, ring, maps);
    }
  }
}

}  // namespace motley::kernels::cuda::grouped
