// The plan of a small batch, computed by every block in its own shared memory, which saves a launch
// and a round trip through L2. The order is that of plan.h: by expert, then label, then pair.
#pragma once

#include "kernels/cuda/experts/factors.cuh"
#include "kernels/cuda/experts/grouped/layer.cuh"

namespace motley::kernels::cuda::grouped {

struct NoPlan {};
template <int capacity>
struct InsidePlan {
  ExpertTile tiles[capacity];
  int tokens[capacity];
  int places[capacity];
  int slots[capacity];  // by token: its pairs that have an expert
  int tile_count, routed;
};
// `capacity` bounds pairs times max_terms.
template <int capacity>
struct InsideLoraPlan : InsidePlan<capacity> {
  ExpertPiece pieces[capacity];
  int piece_begin[capacity + 1];
  DeltaEntry entries[2][capacity];
};

// Used only during the sort; shares memory with the stages of the ring.
template <int capacity>
struct InsideScratch {
  unsigned keys[capacity];        // of a pair
  unsigned sorted[capacity + 1];  // of a place
  int begins[capacity];           // by place: where its expert's places begin
  int routed[capacity / 32], tiles[capacity / 32], pieces[capacity / 32];  // of 32 places
};

// (expert, label + 1, pair) as bits that compare in that order.
struct PairKey {
  static constexpr int label_bit = 9, expert_bit = 20;
  static_assert(inside_pairs <= 1 << label_bit);
  static_assert(max_labels < 1 << (expert_bit - label_bit));
  static constexpr unsigned none = 0xFFFFFFFF;
  unsigned bits;

  __device__ PairKey(int expert, int label, int pair)
      : bits(static_cast<unsigned>(expert) << expert_bit |
             static_cast<unsigned>(label + 1) << label_bit | static_cast<unsigned>(pair)) {}
  __device__ explicit PairKey(unsigned from) : bits(from) {}
  __device__ int expert() const { return static_cast<int>(bits >> expert_bit); }
  __device__ int label() const {
    return static_cast<int>(bits >> label_bit & ((1U << (expert_bit - label_bit)) - 1)) - 1;
  }
  __device__ int pair() const { return static_cast<int>(bits & ((1U << label_bit) - 1)); }
  __device__ bool same_group(PairKey other) const {
    return bits >> label_bit == other.bits >> label_bit;
  }
};

// Sums a block's flags before this thread's, and all of them. `of_warp` has been written.
template <int warps>
__device__ inline int sum_before(const int (&of_warp)[warps], int warp, int& total) {
  int before = 0;
  total = 0;
#pragma unroll
  for (int w = 0; w < warps; ++w) {
    before += w < warp ? of_warp[w] : 0;
    total += of_warp[w];
  }
  return before;
}

// Finds the place of each pair, and what depends on the pair or its token alone.
template <bool lora, int capacity, class Plan>
__device__ inline void sort_keys(const LayerParams& p, Plan& s, InsideScratch<capacity>& scratch) {
  const int t = static_cast<int>(threadIdx.x);
  PairKey mine(PairKey::none);
  if (t < p.pairs) {
    const int id = __ldcg(&p.ids[t]);
    int label = -1;
    if constexpr (lora) label = __ldg(&p.labels[t / p.top_k]);
    mine = PairKey(id < 0 || id >= p.experts ? p.experts : id, label, t);
  }
  if (t < capacity) scratch.keys[t] = mine.bits;
  __syncthreads();
  if (t < p.pairs) {
    const unsigned expert = mine.bits >> PairKey::expert_bit << PairKey::expert_bit;
    int place = 0;
    int begin = 0;
    for (int i = 0; i < p.pairs; i += 4) {
      const uint4 k = *reinterpret_cast<const uint4*>(&scratch.keys[i]);
      const unsigned keys[4] = {k.x, k.y, k.z, k.w};
#pragma unroll
      for (const unsigned key : keys) {
        place += key < mine.bits ? 1 : 0;
        begin += key < expert ? 1 : 0;
      }
    }
    scratch.sorted[place] = mine.bits;
    scratch.begins[place] = begin;
    // not routed: behind every routed place
    s.places[t] = mine.expert() < p.experts ? place : capacity;
  }
  if (t == 0) scratch.sorted[p.pairs] = PairKey::none;
  if (t < p.tokens) {
    int slots = 0;
    for (int i = t * p.top_k; i < (t + 1) * p.top_k; ++i)
      slots += PairKey(scratch.keys[i]).expert() < p.experts ? 1 : 0;
    s.slots[t] = slots;
  }
  __syncthreads();
}

// What a thread's place begins and ends.
struct PlaceBounds {
  PairKey here;
  bool routed;
  int within;  // the place's position in its tile
  bool ends_tile, begins_piece, ends_piece;
};
template <bool lora, int capacity>
__device__ inline PlaceBounds bounds_of_place(const LayerParams& p,
                                              const InsideScratch<capacity>& scratch) {
  const int t = static_cast<int>(threadIdx.x);
  const PairKey here(t < p.pairs ? scratch.sorted[t] : PairKey::none);
  const PairKey next(t < p.pairs ? scratch.sorted[t + 1] : PairKey::none);
  PlaceBounds at{.here = here};
  at.routed = t < p.pairs && here.expert() < p.experts;
  at.within = at.routed ? (t - scratch.begins[t]) % p.tile_places : 0;
  at.ends_tile = at.routed && (at.within + 1 == p.tile_places || next.expert() != here.expert());
  const bool labelled = lora && at.routed && here.label() >= 0;
  at.begins_piece =
      labelled && (at.within == 0 || !here.same_group(PairKey(scratch.sorted[t - 1])));
  at.ends_piece = labelled && (at.ends_tile || !here.same_group(next));
  return at;
}

// Called by all threads of a block, at least `capacity` of them: one per pair, then one per place.
template <bool lora, int capacity, class Plan>
__device__ inline void make_inside_plan(const LayerParams& p, Plan& s,
                                        InsideScratch<capacity>& scratch) {
  sort_keys<lora>(p, s, scratch);
  const int t = static_cast<int>(threadIdx.x);
  const int warp = t / 32;
  const unsigned lanes_before = (1U << t % 32) - 1;
  const PlaceBounds at = bounds_of_place<lora>(p, scratch);
  const unsigned tile_ends = __ballot_sync(0xFFFFFFFF, at.ends_tile);
  const unsigned piece_begins = __ballot_sync(0xFFFFFFFF, at.begins_piece);
  const unsigned all_routed = __ballot_sync(0xFFFFFFFF, at.routed);
  if (t < capacity && t % 32 == 0) {
    scratch.tiles[warp] = __popc(tile_ends);
    scratch.pieces[warp] = __popc(piece_begins);
    scratch.routed[warp] = __popc(all_routed);
  }
  __syncthreads();
  int tile_count = 0;
  const int tile = sum_before(scratch.tiles, warp, tile_count) + __popc(tile_ends & lanes_before);
  if (at.ends_tile) s.tiles[tile] = {at.here.expert(), t - at.within, at.within + 1, 0};
  if (at.routed) s.tokens[t] = at.here.pair() / p.top_k;
  if (t == 0) {
    s.tile_count = tile_count;
    sum_before(scratch.routed, 0, s.routed);
  }
  if constexpr (lora) {
    int piece_count = 0;
    const int before =
        sum_before(scratch.pieces, warp, piece_count) + __popc(piece_begins & lanes_before);
    if (at.routed && at.within == 0) s.piece_begin[tile] = before;
    if (at.begins_piece) {
      s.pieces[before].tile = tile;
      s.pieces[before].label = at.here.label();
      s.pieces[before].begin = t;
    }
    if (at.ends_piece) s.pieces[before - (at.begins_piece ? 0 : 1)].end = t + 1;
    if (t == 0) s.piece_begin[tile_count] = piece_count;
    __syncthreads();
    for (int i = t; i < 2 * piece_count; i += static_cast<int>(blockDim.x)) {
      const ExpertPiece& piece = s.pieces[i / 2];
      resolve_terms(p.deltas, piece.label, s.tiles[piece.tile].expert, i % 2,
                    &s.entries[i % 2][i / 2 * p.deltas.max_terms]);
    }
  }
  fence_async_shared();  // the ring's copies overwrite the scratch
  __syncthreads();
}

}  // namespace motley::kernels::cuda::grouped
