// The producer of weights, which also chooses the items: one thread.
#pragma once

#include "kernels/cuda/grouped/ring.cuh"

namespace motley::kernels::cuda::grouped {

// Rows of A of a piece's terms, a stage's k at a time, rank_block rows after rank_block rows.
template <class S>
__device__ inline void produce_shrink_weights(const LayerParams& p, const Item& item, Ring& ring) {
  const int in = item.seam() == 0 ? p.hidden : p.inner;
  const int steps = (in + S::stage_k - 1) / S::stage_k;
  const std::size_t row_bytes = static_cast<std::size_t>((in + 127) / 128) * 256;
  EntryWalk walk(p, item);
  DeltaEntry entry;
  int piece;
  while (walk.take(entry, piece)) {
    for (int first = 0; first < entry.rank; first += rank_block) {
      const unsigned bytes =
          static_cast<unsigned>(min(rank_block, entry.rank - first)) * 128 * S::atoms;
      const unsigned char* from = entry.a + first * row_bytes;
      for (int kb = 0; kb < steps; ++kb, from += bytes) {
        bar_wait(ring.empty_bar(), ring.parity);
        bar_expect(ring.full_bar(), bytes);
        bulk_copy(ring.data(), from, bytes, ring.full_bar());
        ring.next();
      }
    }
  }
}

// Images of B of a tile's adapters, delta_steps k16 steps a stage, and a stage without any.
template <class S>
__device__ inline void produce_expand_weights(const LayerParams& p, const Item& item, Ring& ring) {
  constexpr int row_blocks = S::rows / 64;
  EntryWalk walk(p, item);
  DeltaEntry entry;
  int piece;
  while (walk.take(entry, piece)) {
    const int all = entry.rank / 16;
    for (int first = 0; first < all; first += S::delta_steps) {
      const int steps = min(S::delta_steps, all - first);
      bar_wait(ring.empty_bar(), ring.parity);
      ring.steps[ring.slot] = steps;
      bar_expect(ring.full_bar(), static_cast<unsigned>(row_blocks * steps) * 2048);
#pragma unroll
      for (int r = 0; r < row_blocks; ++r) {
        const std::size_t block = static_cast<std::size_t>(item.row_tile) * row_blocks + r;
        bulk_copy(ring.data() + r * S::delta_steps * 2048, entry.b + (block * all + first) * 2048,
                  static_cast<unsigned>(steps) * 2048, ring.full_bar());
      }
      ring.next();
    }
  }
  bar_wait(ring.empty_bar(), ring.parity);
  ring.steps[ring.slot] = 0;
  bar_arrive(ring.full_bar());
  ring.next();
}

// Weights wait for nothing but a free stage.
template <class S>
__device__ inline void produce_weights(const LayerParams& p, const LaunchParams& l,
                                       const Tables& tables, ItemQueue& queue, Ring& ring,
                                       const KernelMaps& maps) {
  int index = static_cast<int>(blockIdx.x);
  for (;;) {
    const Item item = item_at<S::lora>(index, tables, l);
    queue.put(item);
    if (item.kind == ItemKind::end) return;
    index = l.in_turn ? index + static_cast<int>(gridDim.x)
                      : static_cast<int>(gridDim.x) + atomicAdd(p.counters.next_item, 1);
    if constexpr (S::lora) {
      if (item.shrinks()) {
        produce_shrink_weights<S>(p, item, ring);
        continue;
      }
    }
    const bool first = item.kind == ItemKind::gate_up;
    const int rows = first ? 2 * p.inner : p.hidden;
    const int steps = ((first ? p.hidden : p.inner) + S::stage_k - 1) / S::stage_k;
    if constexpr (S::bf16) {
      const CUtensorMap* const map = first ? &maps.gate_up : &maps.down;
      const int row = item.expert * rows + item.row_tile * S::rows;
      constexpr int box_rows = S::rows < 128 ? 64 : 128;
      for (int kb = 0; kb < steps; ++kb) {
        bar_wait(ring.empty_bar(), ring.parity);
        bar_expect(ring.full_bar(), S::weight_load);
#pragma unroll
        for (int atom = 0; atom < S::atoms; ++atom)
#pragma unroll
          for (int r = 0; r < S::rows; r += box_rows)
            tma_2d(ring.data() + atom * 8192 + r * 128, map, kb * S::stage_k + atom * 64, row + r,
                   ring.full_bar());
        ring.next();
      }
    } else {
      // blobs lie [expert][128 rows][128 k][half]; a tile that hangs over reads its last rows twice
      const int row_pairs = (rows + 127) / 128;
      const unsigned char* const image =
          (first ? p.gate_up : p.down) +
          static_cast<std::size_t>(item.expert) * row_pairs * steps * (2 * S::block_bytes);
      for (int kb = 0; kb < steps; ++kb) {
        bar_wait(ring.empty_bar(), ring.parity);
        bar_expect(ring.full_bar(), S::weight_load);
        if constexpr (S::rows < 128) {
          const std::size_t pair = item.row_tile / 2;
          bulk_copy(ring.data(),
                    image + ((pair * steps + kb) * 2 + item.row_tile % 2) * S::block_bytes,
                    S::block_bytes, ring.full_bar());
        } else {
#pragma unroll
          for (int r = 0; r < S::rows / 128; ++r) {
            const std::size_t pair = min(item.row_tile * (S::rows / 128) + r, row_pairs - 1);
            bulk_copy(ring.data() + r * 2 * S::block_bytes,
                      image + (pair * steps + kb) * (2 * S::block_bytes), 2 * S::block_bytes,
                      ring.full_bar());
          }
        }
        ring.next();
      }
    }
    if constexpr (S::lora) {
      if (item.first_piece < item.last_piece) produce_expand_weights<S>(p, item, ring);
    }
  }
}

}  // namespace motley::kernels::cuda::grouped
