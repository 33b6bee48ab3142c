// The producers of token rows, by boxes, by tensor map or by copies, and of the rows of rank space;
// and the permutation of token rows that runs beside everything else in prefill.
#pragma once

#include "kernels/cuda/grouped/ring.cuh"

namespace motley::kernels::cuda::grouped {

__device__ inline void wait_for_count(const int* flag, int count) {
  while (load_acquire(flag) < count) {
  }
  fence_async_all();
}

// How often an item goes through k: once, but a shrink for each rank_block rows of its terms.
__device__ inline int passes_of(const LayerParams& p, const Item& item) {
  if (!item.shrinks()) return 1;
  EntryWalk walk(p, item);
  DeltaEntry entry;
  int piece;
  int passes = 0;
  while (walk.take(entry, piece)) passes += (entry.rank + rank_block - 1) / rank_block;
  return passes;
}

// Rows that lie in place order, by the lanes of one warp.
template <class S>
__device__ inline void stream_rows(const Item& item, int cols, Ring& ring,
                                   const CUtensorMap (&maps)[2], bool every_lane_arrives = false) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  // boxes of 64 rows, or of 8 where the tile is no multiple of 64 wide
  const bool wide = item.width % 64 == 0;
  const int box_rows = wide ? 64 : 8;
  const CUtensorMap* const map = wide ? &maps[1] : &maps[0];
  const int boxes = (item.count + box_rows - 1) / box_rows * S::atoms;
  for (int k = 0; k < cols; k += S::stage_k) {
    bar_wait(ring.empty_bar(), ring.parity);
    if (lane == 0) {
      bar_expect(ring.full_bar(), static_cast<unsigned>(boxes * box_rows) * 128);
    } else if (every_lane_arrives) {
      bar_arrive(ring.full_bar());
    }
    __syncwarp();
    const std::uint32_t area = ring.data() + S::weight_bytes;
    for (int i = lane; i < boxes; i += 32) {
      const int atom = i % S::atoms;
      const int rows = i / S::atoms * box_rows;
      tma_2d(area + (atom * item.width + rows) * 128, map, k + atom * 64, item.begin + rows,
             ring.full_bar());
    }
    ring.next();
  }
}

// Rows gathered from x: a box a row, a row a lane. The swizzle follows the absolute address, so
// rows laid under each other are a tile; rows beyond the tile stay as they are, for columns of D
// are independent. Good for few rows only.
template <class S>
__device__ inline void gather_rows(const Item& item, int token, int cols, Ring& ring,
                                   const CUtensorMap* map) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int k = 0; k < cols; k += S::stage_k) {
    bar_wait(ring.empty_bar(), ring.parity);
    if (lane == 0) bar_expect(ring.full_bar(), static_cast<unsigned>(item.count * S::atoms) * 128);
    __syncwarp();
    const std::uint32_t area = ring.data() + S::weight_bytes + lane * 128;
    if (lane < item.count) {
#pragma unroll
      for (int atom = 0; atom < S::atoms; ++atom)
        tma_2d(area + atom * item.width * 128, map, k + atom * 64, token, ring.full_bar());
    }
    ring.next();
  }
}

// One stage's rows of rank space: [step][width rows of 32 bytes], zeros where a row is another
// piece's. By `threads` threads, of which this is number `t`.
template <class S>
__device__ inline void copy_rank_rows(const SeamDeltas& seam, const Item& item,
                                      const ExpertPiece& piece, const DeltaEntry& entry, int first,
                                      int steps, const Ring& ring, int t, int threads) {
  const std::uint32_t area = ring.data() + S::weight_bytes;
  const int chunks = 2 * steps;
  const Bf16* const from = seam.rank_rows + static_cast<std::size_t>(item.begin) * seam.pitch +
                           entry.column + first * 16;
  for (int i = t; i < item.count * chunks; i += threads) {
    const int row = i / chunks;
    const int c = i - row * chunks;
    const bool mine = item.begin + row >= piece.begin && item.begin + row < piece.end;
    copy_16_or_zero(
        area + c / 2 * item.width * 32 + swizzled(static_cast<std::uint32_t>(row), c % 2, 32),
        from + (mine ? static_cast<std::size_t>(row) * seam.pitch + c * 8 : 0), mine);
  }
}

// By one warp. A stage is counted in when its successor's copies are under way.
template <class S>
__device__ inline void produce_rank_rows(const LayerParams& p, const Tables& tables,
                                         const Item& item, Ring& ring) {
  const SeamDeltas& seam = p.seam[item.seam()];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  EntryWalk walk(p, item);
  wait_for_count(&seam.done[item.tile], item.last_piece - item.first_piece);
  int late = ring.slot;
  bool pending = false;
  const auto count_in = [&]() {
    if (pending) {
      copies_wait<1>();
      fence_async_shared();
      __syncwarp();
      if (lane == 0) bar_arrive(ring.full + 8 * late);
      if (++late == ring.depth) late = 0;
    }
    pending = true;
  };
  DeltaEntry entry;
  int of_piece;
  while (walk.take(entry, of_piece)) {
    const ExpertPiece piece = tables.pieces[of_piece];
    for (int first = 0; first < entry.rank / 16; first += S::delta_steps) {
      bar_wait(ring.empty_bar(), ring.parity);
      copy_rank_rows<S>(seam, item, piece, entry, first,
                        min(S::delta_steps, entry.rank / 16 - first), ring, lane, 32);
      ring.next();
      copies_commit();
      count_in();
    }
  }
  copies_commit();
  count_in();
  bar_wait(ring.empty_bar(), ring.parity);
  if (lane == 0) bar_arrive(ring.full_bar());
  ring.next();
}

// One warp.
template <class S>
__device__ inline void produce_tokens(const LayerParams& p, const LaunchParams& l,
                                      const Tables& tables, ItemQueue& queue, Ring& ring,
                                      const KernelMaps& maps) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (;;) {
    const Item item = queue.take();
    if (item.kind == ItemKind::end) return;
    const int passes = S::lora ? passes_of(p, item) : 1;
    if (item.seam() == 1) {
      if (l.phase == Phase::both)
        wait_for_count(&p.counters.tile_done[item.tile], l.gate_up_tiles * S::warpgroups);
      for (int i = 0; i < passes; ++i) stream_rows<S>(item, p.inner, ring, maps.h);
    } else if (S::small) {
      const int token = tables.tokens[item.begin + min(lane, item.count - 1)];
      for (int i = 0; i < passes; ++i) gather_rows<S>(item, token, p.hidden, ring, &maps.x_row);
    } else {
      const int last = (item.begin + item.count - 1) / permute_block;
      for (int b = item.begin / permute_block; b <= last; ++b)
        wait_for_count(&p.counters.permuted[b],
                       min(permute_block, tables.routed - b * permute_block));
      for (int i = 0; i < passes; ++i) stream_rows<S>(item, p.hidden, ring, maps.x_sorted);
    }
    if constexpr (S::lora) {
      if (!item.shrinks() && item.first_piece < item.last_piece)
        produce_rank_rows<S>(p, tables, item, ring);
    }
  }
}

// gate_up's rows by 16-byte copies from x: 64 threads, of which this is number `t`.
template <class S>
__device__ inline void copy_rows(const LayerParams& p, const Item& item, const int* row_offset,
                                 Ring& ring, int t) {
  const int chunk = t % 8;
  // rows advance by 8: the swizzle stays
  const std::uint32_t lane_offset = swizzled(t / 8, chunk, 128);
  const Bf16* from = p.x + chunk * 8;
  for (int k = 0; k < p.hidden; k += S::stage_k, from += S::stage_k) {
    bar_wait(ring.empty_bar(), ring.parity);
    std::uint32_t to = ring.data() + S::weight_bytes + lane_offset;
    if (k + S::stage_k <= p.hidden) {
#pragma unroll 4
      for (int r = t / 8; r < item.count; r += 8, to += 1024)
#pragma unroll
        for (int atom = 0; atom < S::atoms; ++atom)
          copy_16(to + atom * item.width * 128, from + row_offset[r] + atom * 64);
    } else {
      for (int r = t / 8; r < item.count; r += 8, to += 1024)
        for (int atom = 0; atom < S::atoms; ++atom) {
          const bool there = k + atom * 64 + chunk * 8 < p.hidden;
          copy_16_or_zero(to + atom * item.width * 128,
                          there ? from + row_offset[r] + atom * 64 : p.x, there);
        }
    }
    bar_arrive_after_copies(ring.full_bar());
    ring.next();
  }
}

// Two warps: 64 arrivals a stage. For batches whose weights, not whose products, are the bound: a
// permuted copy of x would be more to write and read.
template <class S>
__device__ inline void produce_tokens_copied(const LayerParams& p, const LaunchParams& l,
                                             const Tables& tables, ItemQueue& queue, Ring& ring,
                                             int* row_offset, const KernelMaps& maps) {
  const int t = static_cast<int>(threadIdx.x) % 64;
  for (;;) {
    const Item item = queue.take();
    if (item.kind == ItemKind::end) return;
    const int passes = S::lora ? passes_of(p, item) : 1;
    if (item.seam() == 0) {
      named_barrier(3, 64);
      for (int i = t; i < item.count; i += 64)
        row_offset[i] = tables.tokens[item.begin + i] * p.hidden;
      named_barrier(3, 64);
      for (int i = 0; i < passes; ++i) copy_rows<S>(p, item, row_offset, ring, t);
    } else {
      if (l.phase == Phase::both)
        wait_for_count(&p.counters.tile_done[item.tile], l.gate_up_tiles * S::warpgroups);
      for (int i = 0; i < passes; ++i) {
        if (t < 32) {
          stream_rows<S>(item, p.inner, ring, maps.h, true);
        } else {
          for (int k = 0; k < p.inner; k += S::stage_k) {
            bar_wait(ring.empty_bar(), ring.parity);
            bar_arrive(ring.full_bar());
            ring.next();
          }
        }
      }
    }
    if constexpr (S::lora) {
      if (item.shrinks() || item.first_piece == item.last_piece) continue;
      const SeamDeltas& seam = p.seam[item.seam()];
      EntryWalk walk(p, item);
      wait_for_count(&seam.done[item.tile], item.last_piece - item.first_piece);
      DeltaEntry entry;
      int of_piece;
      while (walk.take(entry, of_piece)) {
        const ExpertPiece piece = tables.pieces[of_piece];
        for (int first = 0; first < entry.rank / 16; first += S::delta_steps) {
          bar_wait(ring.empty_bar(), ring.parity);
          copy_rank_rows<S>(seam, item, piece, entry, first,
                            min(S::delta_steps, entry.rank / 16 - first), ring, t, 64);
          bar_arrive_after_copies(ring.full_bar());
          ring.next();
        }
      }
      bar_wait(ring.empty_bar(), ring.parity);
      bar_arrive(ring.full_bar());
      ring.next();
    }
  }
}

// x_sorted[place] = x[token of the place] by bulk copies through shared memory, a row a lane: it
// needs no registers, and its traffic goes where a compute-bound kernel leaves room. One warp;
// `buffer`: as many rows; a barrier a lane.
__device__ inline void permute_rows(const LayerParams& p, const Tables& tables, int lanes,
                                    std::uint32_t buffer, std::uint32_t bars) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (lane >= lanes) return;
  const auto bytes = static_cast<unsigned>(p.hidden) * 2;
  const std::uint32_t row = buffer + lane * bytes;
  const std::uint32_t bar = bars + 8 * lane;
  std::uint32_t parity = 0;
  const int stride = static_cast<int>(gridDim.x) * lanes;
  for (int i = static_cast<int>(blockIdx.x) * lanes + lane; i < tables.routed; i += stride) {
    const Bf16* const from = p.x + static_cast<std::size_t>(__ldcg(&tables.tokens[i])) * p.hidden;
    bar_expect(bar, bytes);
    bulk_copy(row, from, bytes, bar);
    bar_wait(bar, parity);
    parity ^= 1;
    bulk_store(p.x_sorted + static_cast<std::size_t>(i) * p.hidden, row, bytes);
    bulk_store_wait();
    fence_async_all();
    add_release(&p.counters.permuted[i / permute_block], 1);
  }
}

}  // namespace motley::kernels::cuda::grouped
