// The producers' roles: weights (and the choice of items), token rows by gather or by tensor map,
// and the permutation of token rows that runs beside everything else in prefill.
#pragma once

#include "consumer.cuh"

namespace expert_layer {

__device__ inline void wait_for_count(const int* flag, int count) {
  while (load_acquire(flag) < count) {
  }
  fence_async_all();
}

// A rows of an adapter, 128 k a stage in two blocks of 64, 32 rows apart in the stage.
__device__ inline void produce_shrink_weights(const Item& item, Ring& ring,
                                              const KernelMaps& maps) {
  bool first = item.kind == kShrinkGateUp;
  int rows = first ? 2 * kRank : kRank;
  int row = ((__ffs(item.adapters) - 1) * kExperts + item.expert) * rows;
  const CUtensorMap* map = first ? &maps.lora_gate_up_a : &maps.lora_down_a;
  for (int k = 0; k < (first ? kHidden : kInner); k += 128) {
    bar_wait(ring.empty_bar(), ring.parity);
    bar_expect(ring.full_bar(), rows * 256);
    tma_2d(ring.data(), map, k, row, ring.full_bar());
    tma_2d(ring.data() + 4096, map, k + 64, row, ring.full_bar());
    ring.next();
  }
}

// One thread. Weights wait for nothing but a free stage.
template <class S>
__device__ inline void produce_weights(const LayerParams& p, const LaunchParams& l,
                                       const Tables& tables, ItemQueue& queue, Ring& ring,
                                       const KernelMaps& maps) {
  const CUtensorMap* gate_up_map = S::kSplit ? &maps.gate_up_64 : &maps.gate_up;
  const CUtensorMap* down_map = S::kSplit ? &maps.down_64 : &maps.down;
  constexpr int kK = S::kK;
  int index = blockIdx.x;
  for (;;) {
    Item item;
    if constexpr (S::kInside) {
      item = decode_inside_item<S>(index, tables);
    } else {
      item = decode_item(index, tables.segment_count, S::kGateUpTiles, S::kDownTiles, l);
    }
    if (item.kind != kEnd) {
      index = l.in_turn ? index + gridDim.x : gridDim.x + atomicAdd(&p.plan.next_item[l.cursor], 1);
      Segment s = tables.segments[item.segment];
      item.expert = s.expert, item.start = s.start, item.count = s.count, item.width = s.width;
    }
    queue.put(item);
    if (item.kind == kEnd) return;
    if constexpr (S::kLora) {
      if (item.kind >= kShrinkGateUp) {
        produce_shrink_weights(item, ring, maps);
        continue;
      }
    }
    bool first = item.kind == kGateUp;
    int steps = (first ? kHidden : kInner) / kK;
    int tile = item.expert * (first ? S::kGateUpTiles : S::kDownTiles) + item.row_tile;
    const CUtensorMap* map = first ? gate_up_map : down_map;
    // int4 blobs lie [expert][128 rows][group][half]: a split tile takes one half of two groups
    const uint8_t* blobs = first ? p.gate_up : p.down;
    blobs += S::kSplit ? (static_cast<size_t>(tile / 2) * steps * 4 + tile % 2) * kBlobBytes
                       : static_cast<size_t>(tile) * S::kBlocks * steps * (2 * kBlobBytes);
    for (int kb = 0; kb < steps; kb++) {
      bar_wait(ring.empty_bar(), ring.parity);
      bar_expect(ring.full_bar(), S::kWeightLoad);
      if constexpr (S::kFormat == Format::kBf16) {
        if constexpr (S::kSplit) {
          tma_2d(ring.data(), map, kb * 128, tile * 64, ring.full_bar());
          tma_2d(ring.data() + 8192, map, kb * 128 + 64, tile * 64, ring.full_bar());
        } else {
#pragma unroll
          for (int b = 0; b < S::kBlocks; b++)
            tma_2d(ring.data() + b * 16384, map, kb * 64, tile * S::kRows + b * 128,
                   ring.full_bar());
        }
      } else if constexpr (S::kSplit) {
        bulk_copy(ring.data(), blobs + kb * 4 * kBlobBytes, kBlobBytes, ring.full_bar());
        bulk_copy(ring.data() + kBlobBytes, blobs + (kb * 4 + 2) * kBlobBytes, kBlobBytes,
                  ring.full_bar());
      } else {
#pragma unroll
        for (int b = 0; b < S::kBlocks; b++)
          bulk_copy(ring.data() + b * 2 * kBlobBytes, blobs + (b * steps + kb) * (2 * kBlobBytes),
                    2 * kBlobBytes, ring.full_bar());
      }
      ring.next();
    }
    if constexpr (S::kLora) {
      int bytes = first ? S::kLoraGateUp : S::kLoraDown;
      for (uint32_t rest = item.adapters; rest != 0; rest &= rest - 1) {
        size_t at = static_cast<size_t>(__ffs(rest) - 1) * kExperts *
                        (first ? S::kGateUpTiles : S::kDownTiles) +
                    tile;
        bar_wait(ring.empty_bar(), ring.parity);
        bar_expect(ring.full_bar(), bytes);
        bulk_copy(ring.data(), (first ? p.lora.gate_up_b : p.lora.down_b) + at * bytes, bytes,
                  ring.full_bar());
        ring.next();
      }
    }
  }
}

// Token rows that lie in position order, by the lanes of one warp, `atoms` columns of 64 k a stage.
template <class S>
__device__ inline void stream_tokens(const Item& item, int cols, int atoms, Ring& ring,
                                     const CUtensorMap* narrow, const CUtensorMap* wide,
                                     bool every_lane_arrives = false) {
  int lane = threadIdx.x % 32;
  // boxes of 64 rows, or of 8 where the tile is no multiple of 64 wide
  int box_rows = item.width % 64 == 0 ? 64 : 8;
  const CUtensorMap* map = box_rows == 64 ? wide : narrow;
  int boxes = (item.count + box_rows - 1) / box_rows * atoms;
  for (int k = 0; k < cols; k += atoms * 64) {
    bar_wait(ring.empty_bar(), ring.parity);
    if (lane == 0) {
      bar_expect(ring.full_bar(), boxes * box_rows * 128);
    } else if (every_lane_arrives) {
      bar_arrive(ring.full_bar());
    }
    __syncwarp();
    uint32_t area = ring.data() + S::kWeightBytes;
    for (int i = lane; i < boxes; i += 32) {
      int a = i % atoms, rows = i / atoms * box_rows;
      tma_2d(area + (a * item.width + rows) * 128, map, k + a * 64, item.start + rows,
             ring.full_bar());
    }
    ring.next();
  }
}

// Token rows gathered from x: a box a row, a row a lane. The swizzle follows the absolute address,
// so rows laid under each other are a tile; rows beyond the segment stay as they are, for columns
// of D are independent. Good for few rows only.
template <class S>
__device__ inline void gather_tokens(const Item& item, int token, int atoms, Ring& ring,
                                     const CUtensorMap* map) {
  int lane = threadIdx.x % 32;
  for (int k = 0; k < kHidden; k += atoms * 64) {
    bar_wait(ring.empty_bar(), ring.parity);
    if (lane == 0) bar_expect(ring.full_bar(), item.count * atoms * 128);
    __syncwarp();
    uint32_t area = ring.data() + S::kWeightBytes + lane * 128;
    if (lane < item.count)
      for (int a = 0; a < atoms; a++)
        tma_2d(area + a * item.width * 128, map, k + a * 64, token, ring.full_bar());
    ring.next();
  }
}

// The rank-space rows of a tile, an adapter a stage: [step][width rows of 32 bytes], zeros where
// the row is another's. A stage is counted in when its successor's copies are under way.
template <class S>
__device__ inline void gather_rank_rows(const LayerParams& p, const Tables& tables,
                                        const Item& item, Ring& ring) {
  bool first = item.kind == kGateUp;
  int lane = threadIdx.x % 32, steps = first ? 2 : 1, chunks = item.width * steps * 2;
  int late = ring.slot;
  wait_for_count(&(first ? p.lora.gate_up_rank_done : p.lora.down_rank_done)[item.segment],
                 __popc(item.adapters));
  const Bf16* rank = (first ? p.lora.gate_up_rank : p.lora.down_rank) + item.start * kRank * steps;
  bool pending = false;
  for (uint32_t rest = item.adapters;; rest &= rest - 1) {
    if (rest != 0) {
      bar_wait(ring.empty_bar(), ring.parity);
      uint32_t area = ring.data() + S::kWeightBytes;
      for (int i = lane; i < chunks; i += 32) {
        int row = i / (2 * steps), c = i % (2 * steps);
        bool mine = row < item.count && tables.adapter_of[item.start + row] == __ffs(rest) - 1;
        copy_16_or_zero(area + c / 2 * item.width * 32 + swizzled(row, c % 2, 32),
                        rank + (mine ? row * kRank * steps + c * 8 : 0), mine);
      }
      ring.next();
    }
    copies_commit();
    if (pending) {
      copies_wait<1>();
      fence_async_shared();
      __syncwarp();
      if (lane == 0) bar_arrive(ring.full + 8 * late);
      if (++late == ring.depth) late = 0;
    }
    if (rest == 0) return;
    pending = true;
  }
}

// One warp. Decode gathers gate_up's rows; prefill reads them from the permuted copy.
template <class S>
__device__ inline void produce_tokens(const LayerParams& p, const Tables& tables, ItemQueue& queue,
                                      Ring& ring, const KernelMaps& maps) {
  for (;;) {
    Item item = queue.take();
    if (item.kind == kEnd) return;
    bool shrink = S::kLora && item.kind >= kShrinkGateUp;
    int atoms = shrink ? 2 : S::kAtoms;
    if (item.kind == kDown || item.kind == kShrinkDown) {
      wait_for_count(&p.plan.segment_done[item.segment], S::kGateUpArrivals);
      if (threadIdx.x % 32 == 0) trace(p, kActReady);
      stream_tokens<S>(item, kInner, atoms, ring, &maps.act, &maps.act_wide);
    } else if constexpr (S::kInside) {
      int row = min(static_cast<int>(threadIdx.x % 32), item.count - 1);
      gather_tokens<S>(item, tables.token_of[item.start + row], atoms, ring, &maps.x_row);
    } else {
      int last = (item.start + item.count - 1) / kPermuteBlock;
      for (int b = item.start / kPermuteBlock; b <= last; b++)
        wait_for_count(&p.plan.permuted[b], min(kPermuteBlock, p.pairs - b * kPermuteBlock));
      stream_tokens<S>(item, kHidden, atoms, ring, &maps.x[0], &maps.x[1]);
    }
    if constexpr (S::kLora) {
      if (!shrink && item.adapters != 0) gather_rank_rows<S>(p, tables, item, ring);
    }
  }
}

// Two warps: 64 arrivals a stage. gate_up's rows by 16-byte copies from x, down's by tensor map.
// For batches whose weights, not whose products, are the bound: a permuted copy of x would be more
// to write and read.
template <class S, int kMaxWidth>
__device__ inline void produce_tokens_copied(const LayerParams& p, const Tables& tables,
                                             ItemQueue& queue, Ring& ring, int* row_offset,
                                             const KernelMaps& maps) {
  int tt = threadIdx.x % 64, chunk = tt % 8;
  uint32_t lane_offset = swizzled(tt / 8, chunk, 128);  // rows advance by 8: the swizzle stays
  for (;;) {
    Item item = queue.take();
    if (item.kind == kEnd) return;
    if (item.kind == kGateUp) {
      named_barrier(3, 64);
      for (int i = tt; i < item.count; i += 64)
        row_offset[i] = tables.token_of[item.start + i] * kHidden;
      named_barrier(3, 64);
      const Bf16* from = p.x + chunk * 8;
      for (int k = 0; k < kHidden; k += S::kK, from += S::kK) {
        bar_wait(ring.empty_bar(), ring.parity);
        uint32_t to = ring.data() + S::kWeightBytes + lane_offset;
#pragma unroll 4
        for (int r = tt / 8; r < item.count; r += 8, to += 1024)
#pragma unroll
          for (int a = 0; a < S::kAtoms; a++)
            copy_16(to + a * item.width * 128, from + row_offset[r] + a * 64);
        bar_arrive_after_copies(ring.full_bar());
        ring.next();
      }
    } else {
      wait_for_count(&p.plan.segment_done[item.segment], S::kGateUpArrivals);
      if (tt < 32) {
        stream_tokens<S>(item, kInner, S::kAtoms, ring, &maps.act, &maps.act_wide, true);
      } else {
        for (int k = 0; k < kInner; k += S::kK) {
          bar_wait(ring.empty_bar(), ring.parity);
          bar_arrive(ring.full_bar());
          ring.next();
        }
      }
    }
  }
}

// x_sorted[position] = x[token_of[position]] by bulk copies through shared memory, a row a lane: it
// needs no registers, and its traffic goes where a compute-bound kernel leaves room. One warp;
// `buffer`: as many rows; a barrier a lane.
__device__ inline void permute_rows(const LayerParams& p, int lanes, uint32_t buffer,
                                    uint32_t bars) {
  int lane = threadIdx.x % 32;
  if (lane >= lanes) return;
  uint32_t row = buffer + lane * kHidden * 2, bar = bars + 8 * lane, parity = 0;
  int stride = gridDim.x * lanes;
  for (int i = blockIdx.x * lanes + lane; i < p.pairs; i += stride) {
    const Bf16* from = p.x + static_cast<size_t>(__ldcg(&p.plan.token_of[i])) * kHidden;
    bar_expect(bar, kHidden * 2);
    bulk_copy(row, from, kHidden * 2, bar);
    bar_wait(bar, parity);
    parity ^= 1;
    bulk_store(p.x_sorted + static_cast<size_t>(i) * kHidden, row, kHidden * 2);
    bulk_store_wait();
    fence_async_all();
    add_release(&p.plan.permuted[i / kPermuteBlock], 1);
  }
}

}  // namespace expert_layer
