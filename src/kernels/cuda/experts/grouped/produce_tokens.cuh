// The producers of token rows, by boxes, by tensor map or by copies, and of rank rows; and the
// permutation of token rows that runs concurrently in prefill.
#pragma once

#include "kernels/cuda/experts/grouped/ring.cuh"

namespace motley::kernels::cuda::grouped {

__device__ inline void wait_for_count(const int* flag, int count) {
  while (load_acquire(flag) < count) {
  }
  fence_async_all();
}

// How often an item goes through k: once; a shrink once for each rank_block rows of its terms.
__device__ inline int passes_of(EntryWalk walk) {
  int passes = 0;
  while (walk.next()) passes += (walk.rank() + rank_block - 1) / rank_block;
  return passes;
}

// The layout of token rows in a stage of a tile or of a shrink.
template <class S, bool shrinks>
struct TokenArea {
  static constexpr int atoms = shrinks ? S::shrink_atoms : S::atoms;
  static constexpr int k = 64 * atoms;
  static constexpr int offset = shrinks ? S::shrink_tokens : S::weight_bytes;
};

// Loads rows that are in the order of places. One warp calls it.
template <class Area>
__device__ inline void stream_rows(const Item& item, int cols, Ring& ring,
                                   const CUtensorMap (&maps)[2], bool every_lane_arrives) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  // boxes of 64 rows, or of 8 if the tile's width is no multiple of 64
  const bool wide = item.width % 64 == 0;
  const int box_rows = wide ? 64 : 8;
  const CUtensorMap* const map = wide ? &maps[1] : &maps[0];
  const int boxes = (item.count + box_rows - 1) / box_rows * Area::atoms;
  for (int k = 0; k < cols; k += Area::k) {
    bar_wait(ring.empty_bar(), ring.parity);
    if (lane == 0) {
      bar_expect(ring.full_bar(), static_cast<unsigned>(boxes * box_rows) * 128);
    } else if (every_lane_arrives) {
      bar_arrive(ring.full_bar());
    }
    __syncwarp();
    const std::uint32_t area = ring.data() + Area::offset;
    for (int i = lane; i < boxes; i += 32) {
      const int atom = i % Area::atoms;
      const int rows = i / Area::atoms * box_rows;
      tma_2d(area + (atom * item.width + rows) * 128, map, k + atom * 64, item.begin + rows,
             ring.full_bar());
    }
    ring.next();
  }
}

// Loads rows of codes, which are in the order of places, by tensor map, and their scales by copies:
// a tile may begin at any place. One warp calls it.
template <class S>
__device__ inline void stream_codes(const LayerParams& p, const Item& item, int cols, Ring& ring,
                                    const KernelMaps& maps) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const bool wide = item.width % 64 == 0;
  const int box_rows = wide ? 64 : 8;
  const CUtensorMap* const map = wide ? &maps.x_sorted[1] : &maps.x_sorted[0];
  const int boxes = (item.count + box_rows - 1) / box_rows;
  const float* scales = p.inputs.scales + item.begin;
  for (int k = 0; k < cols; k += S::stage_k, scales += p.inputs.pitch) {
    bar_wait(ring.empty_bar(), ring.parity);
    if (lane == 0) bar_expect(ring.full_bar(), static_cast<unsigned>(boxes * box_rows) * 128);
    __syncwarp();
    // The map counts two codes as one number.
    if (lane < boxes)
      tma_2d(ring.data() + S::weight_bytes + lane * box_rows * 128, map, k / 2,
             item.begin + lane * box_rows, ring.full_bar());
    if (lane > 0) {
      for (int i = lane - 1; i < item.count; i += 31)
        copy_4_or_zero(ring.data() + S::token_scales + i * sizeof(float), scales + i, true);
      bar_arrive_after_copies(ring.full_bar());
    }
    ring.next();
  }
}

// Gathers rows of x: one box per row, one row per lane. The swizzle depends on the absolute
// address, so consecutive rows form a tile. Rows beyond the tile are left as they are, since
// columns of D are independent. Only fast for few rows.
template <class Area>
__device__ inline void gather_rows(const Item& item, int token, int cols, Ring& ring,
                                   const CUtensorMap* map, bool every_lane_arrives) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int k = 0; k < cols; k += Area::k) {
    bar_wait(ring.empty_bar(), ring.parity);
    if (lane == 0) {
      bar_expect(ring.full_bar(), static_cast<unsigned>(item.count * Area::atoms) * 128);
    } else if (every_lane_arrives) {
      bar_arrive(ring.full_bar());
    }
    __syncwarp();
    const std::uint32_t area = ring.data() + Area::offset + lane * 128;
    if (lane < item.count) {
#pragma unroll
      for (int atom = 0; atom < Area::atoms; ++atom)
        tma_2d(area + atom * item.width * 128, map, k + atom * 64, token, ring.full_bar());
    }
    ring.next();
  }
}

// Loads one stage of rank rows: [step][width rows of 32 bytes], with zeros for rows of other
// pieces. One warp calls it.
template <class S>
__device__ inline void copy_rank_rows(const SeamDeltas& seam, StepWalk& walk, const Item& item,
                                      std::uint32_t area, int lane) {
  const int chunk = lane % 2;
  const Bf16* const rows =
      seam.rank_rows + static_cast<std::size_t>(item.begin) * seam.pitch + chunk * 8;
  for (int step = 0; step < S::delta_steps && walk.next(); ++step, area += item.width * 32) {
    const int begin = walk.entry().begin() - item.begin;
    const int end = walk.entry().end() - item.begin;
    const Bf16* const from = rows + walk.entry().column() + walk.step() * 16;
    for (int row = lane / 2; row < item.count; row += 16) {
      const bool mine = row >= begin && row < end;
      copy_16_or_zero(area + swizzled(static_cast<std::uint32_t>(row), chunk, 32),
                      mine ? from + static_cast<std::size_t>(row) * seam.pitch : from, mine);
    }
  }
}

// The stages that an item takes for its own k in all passes.
template <class S>
__device__ inline int base_stages(const LayerParams& p, const Item& item, const EntryWalk& terms) {
  const bool first = item.seam() == 0;
  if (!item.shrinks()) return ((first ? p.hidden : p.down_columns) + S::stage_k - 1) / S::stage_k;
  const int k = first ? p.hidden : p.inner;
  return (k + S::shrink_k - 1) / S::shrink_k * passes_of(terms);
}
// The stages that follow for its adapters.
template <class S>
__device__ inline int adapted_stages(const Item& item, EntryWalk terms) {
  if (item.shrinks() || item.first_piece == item.last_piece) return 0;
  return delta_stages<S>(terms.total_rank() / 16);
}

// The token side skips stages that the warp of rank rows fills. `leads`: this thread grants them.
// Only that thread waits: no other one arrives at these stages, so one that is late could take a
// later phase of a stage for its own, and wait forever.
__device__ inline void grant_stages(Ring& ring, const SlotSignals& grants, int stages, bool leads) {
  for (int i = 0; i < stages; ++i) {
    if (leads) {
      bar_wait(ring.empty_bar(), ring.parity);
      grants.give(ring.slot);
    }
    ring.next();
  }
  __syncwarp();
}

// Loads rank rows with one warp. All arrivals of the token side are made by the copies when they
// land, and consumers fence.
template <class S>
__device__ inline void produce_rank_rows(const LayerParams& p, const Tables& tables,
                                         Pipelines& pipelines) {
  const int own = static_cast<int>(threadIdx.x) % 32;
  Ring& ring = pipelines.ring;
  for (;;) {
    const Item item = pipelines.queue.take();
    if (item.kind == ItemKind::end) return;
    StepWalk walk(p, tables, item);
    ring.slot = (ring.slot + base_stages<S>(p, item, walk.entry())) % ring.depth;
    const int stages = adapted_stages<S>(item, walk.entry());
    if (stages == 0) continue;
    const SeamDeltas& seam = p.seam[item.seam()];
    if constexpr (S::shrinks)
      wait_for_count(&seam.done[item.tile], item.last_piece - item.first_piece);
    for (int i = 0; i < stages; ++i) {
      pipelines.grants.wait(ring.slot);
      copy_rank_rows<S>(seam, walk, item, ring.data() + S::weight_bytes, own);
      for (int j = 0; j < pipelines.arrivals / 32; ++j) bar_arrive_after_copies(ring.full_bar());
      ring.next();
    }
  }
}

// One pass of an item's token rows through k, by one warp.
template <class S, bool shrinks>
__device__ inline void produce_pass(const LayerParams& p, const Item& item, int token, Ring& ring,
                                    const KernelMaps& maps, bool arranged) {
  using Area = TokenArea<S, shrinks>;
  if constexpr (S::coded_inputs && !shrinks) {
    stream_codes<S>(p, item, item.seam() == 1 ? p.inner : p.hidden, ring, maps);
  } else if (!shrinks && arranged) {
    const int columns = item.seam() == 1 ? p.down_columns : p.hidden;
    stream_rows<Area>(item, columns, ring, maps.x_sorted, S::lora);
  } else if (item.seam() == 1) {
    stream_rows<Area>(item, p.inner, ring, maps.h, S::lora);
  } else if (S::small) {
    gather_rows<Area>(item, token, p.hidden, ring, &maps.x_row, S::lora);
  } else {
    stream_rows<Area>(item, p.hidden, ring, maps.x_sorted, S::lora);
  }
}

// Run by one warp.
template <class S>
__device__ inline void produce_tokens(const LayerParams& p, const LaunchParams& l,
                                      const Tables& tables, Pipelines& pipelines,
                                      const KernelMaps& maps) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  Ring& ring = pipelines.ring;
  for (;;) {
    const Item item = pipelines.queue.take();
    if (item.kind == ItemKind::end) return;
    EntryWalk terms{};
    if constexpr (S::lora) terms = EntryWalk(p, tables, item);
    int token = 0;
    if (item.seam() == 1) {
      if (l.phase == Phase::both)
        wait_for_count(&p.counters.tile_done[item.tile], l.gate_up_tiles * S::warpgroups);
    } else if (S::small) {
      token = tables.tokens[item.begin + min(lane, item.count - 1)];
    } else if (!l.arranged) {
      // one flag per lane
      const int b = item.begin / permute_block + lane;
      const bool mine = b <= (item.begin + item.count - 1) / permute_block;
      const int rows = min(permute_block, tables.routed - b * permute_block);
      while (!__all_sync(0xFFFFFFFF, !mine || load_acquire(&p.counters.permuted[b]) >= rows)) {
      }
      fence_async_all();
    }
    if (S::shrinks && item.shrinks()) {
      const int passes = passes_of(terms);
      for (int i = 0; i < passes; ++i)
        produce_pass<S, true>(p, item, token, ring, maps, l.arranged);
    } else {
      produce_pass<S, false>(p, item, token, ring, maps, l.arranged);
    }
    if constexpr (S::lora)
      grant_stages(ring, pipelines.grants, adapted_stages<S>(item, terms), lane == 0);
  }
}

// Copies rows of gate_up from x in 16-byte pieces: 64 threads, of which this is number `t`.
template <class Area>
__device__ inline void copy_rows(const LayerParams& p, const Item& item, const int* row_offset,
                                 Ring& ring, int t) {
  const int chunk = t % 8;
  // rows advance by 8, which keeps the swizzle
  const std::uint32_t lane_offset = swizzled(t / 8, chunk, 128);
  const Bf16* from = p.x + chunk * 8;
  for (int k = 0; k < p.hidden; k += Area::k, from += Area::k) {
    bar_wait(ring.empty_bar(), ring.parity);
    std::uint32_t to = ring.data() + Area::offset + lane_offset;
    if (k + Area::k <= p.hidden) {
#pragma unroll 4
      for (int r = t / 8; r < item.count; r += 8, to += 1024)
#pragma unroll
        for (int atom = 0; atom < Area::atoms; ++atom)
          copy_16(to + atom * item.width * 128, from + row_offset[r] + atom * 64);
    } else {
      for (int r = t / 8; r < item.count; r += 8, to += 1024)
        for (int atom = 0; atom < Area::atoms; ++atom) {
          const bool there = k + atom * 64 + chunk * 8 < p.hidden;
          copy_16_or_zero(to + atom * item.width * 128,
                          there ? from + row_offset[r] + atom * 64 : p.x, there);
        }
    }
    bar_arrive_after_copies(ring.full_bar());
    ring.next();
  }
}

// One pass of an item's token rows through k, by two warps: 64 arrivals per stage.
template <class S, bool shrinks>
__device__ inline void produce_pass_copied(const LayerParams& p, const Item& item,
                                           const int* row_offset, Ring& ring, int t,
                                           const KernelMaps& maps) {
  using Area = TokenArea<S, shrinks>;
  if (item.seam() == 0) {
    copy_rows<Area>(p, item, row_offset, ring, t);
  } else if (t < 32) {
    stream_rows<Area>(item, p.inner, ring, maps.h, true);
  } else {
    for (int k = 0; k < p.inner; k += Area::k) {
      bar_wait(ring.empty_bar(), ring.parity);
      bar_arrive(ring.full_bar());
      ring.next();
    }
  }
}

// Run by two warps. For batches that are bound by weights rather than by products: a permuted copy
// of x would be additional traffic.
template <class S, int max_width>
__device__ inline void produce_tokens_copied(const LayerParams& p, const LaunchParams& l,
                                             const Tables& tables, Pipelines& pipelines,
                                             const KernelMaps& maps) {
  __shared__ int row_offset[max_width];
  const int t = static_cast<int>(threadIdx.x) % 64;
  Ring& ring = pipelines.ring;
  for (;;) {
    const Item item = pipelines.queue.take();
    if (item.kind == ItemKind::end) return;
    EntryWalk terms{};
    if constexpr (S::lora) terms = EntryWalk(p, tables, item);
    if (item.seam() == 0) {
      named_barrier(3, 64);
      for (int i = t; i < item.count; i += 64)
        row_offset[i] = tables.tokens[item.begin + i] * p.hidden;
      named_barrier(3, 64);
    } else if (l.phase == Phase::both) {
      wait_for_count(&p.counters.tile_done[item.tile], l.gate_up_tiles * S::warpgroups);
    }
    if (S::shrinks && item.shrinks()) {
      const int passes = passes_of(terms);
      for (int i = 0; i < passes; ++i)
        produce_pass_copied<S, true>(p, item, row_offset, ring, t, maps);
    } else {
      produce_pass_copied<S, false>(p, item, row_offset, ring, t, maps);
    }
    if constexpr (!S::lora) continue;
    const int adapted = adapted_stages<S>(item, terms);
    if (adapted > 0) {
      // the second warp follows after the first one has found all of them free
      if (t < 32) grant_stages(ring, pipelines.grants, adapted, t == 0);
      named_barrier(3, 64);
      for (int i = 0; t >= 32 && i < adapted; ++i) ring.next();
    }
  }
}

// x_sorted[place] = x[token of the place] by bulk copies through shared memory, one row per lane.
// This takes no registers, and its traffic uses bandwidth that a compute-bound kernel leaves. One
// warp; `buffer` holds one row per lane; one barrier per lane. Rows are taken by ticket, because
// tiles wait for them, and a block that is not resident would keep a share of its own.
__device__ inline void permute_rows(const LayerParams& p, const Tables& tables, int lanes,
                                    std::uint32_t buffer, std::uint32_t bars) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (lane >= lanes) return;
  const auto bytes = static_cast<unsigned>(p.hidden) * 2;
  const std::uint32_t row = buffer + lane * bytes;
  const std::uint32_t bar = bars + 8 * lane;
  std::uint32_t parity = 0;
  const unsigned together = (1U << lanes) - 1;
  const auto ticket = [&] { return lane == 0 ? atomicAdd(p.counters.next_permuted, lanes) : 0; };
  for (int ahead = ticket();;) {
    const int first = __shfl_sync(together, ahead, 0);
    if (first >= tables.routed) return;
    ahead = ticket();
    const int i = first + lane;
    if (i >= tables.routed) continue;
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
