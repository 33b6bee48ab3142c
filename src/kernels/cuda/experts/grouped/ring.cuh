// What the warps of a block share: the ring of stages between producers and consumers, the queue of
// items, and signals about stages.
#pragma once

#include "kernels/cuda/experts/grouped/layer.cuh"
#include "kernels/cuda/primitives/pipeline.cuh"

namespace motley::kernels::cuda::grouped {

inline constexpr int last_steps = 256;

// Full barriers (arrival of the weights, then of the token threads), followed by empty barriers (an
// arrival of each consumer warp, or of each of its lanes).
struct Ring : PipelineState {
  std::uint32_t stages, full, empty, stage_bytes;
  int depth;
  bool every_lane;  // each lane arrives on "empty", because lanes read weights themselves
  int* steps;  // [depth] k16 steps of adapters in a stage; + last_steps in the item's last stage

  __device__ std::uint32_t data() const { return stages + slot * stage_bytes; }
  __device__ std::uint32_t full_bar() const { return full + 8 * slot; }
  __device__ std::uint32_t empty_bar() const { return empty + 8 * slot; }
  __device__ int before() const { return (slot == 0 ? depth : slot) - 1; }
  // Called by whole consumer warps after waiting for the products that read the stage. A __syncwarp
  // between products of int4 would make ptxas serialise them.
  __device__ void release(int at) const {
    if (every_lane || threadIdx.x % 32 == 0) bar_arrive(empty + 8 * at);
  }
  // For stages that lanes read other than by products.
  __device__ void release_read(int at) const {
    __syncwarp();
    release(at);
  }
  __device__ void next() { advance(depth); }
};

// Signals from one side to another about a slot of the ring, with one barrier per slot. Sides that
// use only some stages cannot follow the ring's own barriers, which only distinguish consecutive
// phases. A slot is signalled again only after the previous signal was waited for.
struct SlotSignals {
  std::uint32_t bars;
  unsigned parity = 0;  // of each slot

  __device__ void give(int slot) const { bar_arrive(bars + 8 * slot); }
  __device__ void wait(int slot) {
    bar_wait(bars + 8 * slot, parity >> slot & 1);
    parity ^= 1U << slot;
  }
};

enum class ItemKind : int { end, gate_up, down, shrink_gate_up, shrink_down };

struct Item {
  ItemKind kind;
  int tile, row_tile;
  int expert, begin, count, width;
  int first_piece, last_piece;  // of a tile; of a shrink: first_piece alone

  __device__ bool shrinks() const {
    return kind == ItemKind::shrink_gate_up || kind == ItemKind::shrink_down;
  }
  __device__ int seam() const {
    return kind == ItemKind::gate_up || kind == ItemKind::shrink_gate_up ? 0 : 1;
  }
};

// The items of a launch in order: the shrinks of pieces for gate_up, so that rank rows are ready
// when a tile ends, then the tiles of gate_up; then the same for down. The order is topological: an
// item depends only on items that running blocks have taken already.
template <class S>
class ItemList {
 public:
  __device__ ItemList(const Tables& tables, const LaunchParams& l)
      : tables_(tables), l_(l), pieces_(S::shrinks ? tables.piece_begin[tables.tile_count] : 0) {}

  __device__ Item at(int number) const {
    Item item{};
    bool second = l_.phase == Phase::down;
    int row_tiles = second ? l_.down_tiles : l_.gate_up_tiles;
    int count = pieces_ + tables_.tile_count * row_tiles;
    if (number >= count && l_.phase == Phase::both) {
      number -= count;
      second = true;
      row_tiles = l_.down_tiles;
      count = pieces_ + tables_.tile_count * row_tiles;
    }
    if (number >= count) return item;
    if (S::shrinks && number < pieces_) {
      item.first_piece = number;
      const ExpertPiece piece = tables_.pieces[number];
      item.kind = second ? ItemKind::shrink_down : ItemKind::shrink_gate_up;
      item.tile = piece.tile;
      item.begin = piece.begin;
      item.count = piece.end - piece.begin;
      item.last_piece = number + 1;
    } else {
      number -= pieces_;
      item.kind = second ? ItemKind::down : ItemKind::gate_up;
      item.tile = number / row_tiles;
      item.row_tile = number - item.tile * row_tiles;
      const ExpertTile found = tables_.tiles[item.tile];
      item.expert = found.expert;
      item.begin = found.begin;
      item.count = found.count;
      if (S::lora) {
        item.first_piece = tables_.piece_begin[item.tile];
        item.last_piece = tables_.piece_begin[item.tile + 1];
      }
    }
    item.width = width_for<S>(item.count);
    return item;
  }

 private:
  const Tables& tables_;
  const LaunchParams& l_;
  int pieces_;  // pieces that this launch shrinks at each seam
};

// Items in flight from the scheduling thread to the other threads of a block.
inline constexpr int item_slots = 4;
struct ItemQueue : PipelineState {
  Item* items;
  std::uint32_t full, empty;

  __device__ void next() { advance(item_slots); }
  __device__ void put(const Item& item) {
    bar_wait(empty + 8 * slot, parity ^ 1);
    items[slot] = item;
    bar_arrive(full + 8 * slot);
    next();
  }
  // Called by whole warps; every lane arrives after its own reads. Consumers read an item in place
  // to save registers.
  __device__ const Item& front() {
    bar_wait(full + 8 * slot, parity);
    return items[slot];
  }
  __device__ void pop() {
    bar_arrive(empty + 8 * slot);
    next();
  }
  __device__ Item take() {
    Item item = front();
    pop();
    return item;
  }
};

// A thread's state in all that the warps of its block share.
struct Pipelines {
  Ring ring;
  ItemQueue queue;
  SlotSignals grants;          // a stage may be filled with rank rows
  std::uint32_t permute_bars;  // of each lane that permutes
  int arrivals;                // of the token side, per stage
};

// Synchronises the 128 threads of a warpgroup. Ids are constants, because ptxas would otherwise
// reserve all 16 barriers.
__device__ inline void consumer_barrier(int warpgroup) {
  if (warpgroup == 0)
    named_barrier(1, 128);
  else
    named_barrier(2, 128);
}
// Of both warpgroups.
__device__ inline void both_consumers_barrier() { named_barrier(4, 256); }

struct ConsumerState {
  Ring ring;
  std::uint32_t buffer;  // of the warpgroup, for its stores
  unsigned char* last;   // [width] flags: this tile is the last of the row's token, and sums it
  int warpgroup;
  bool copied;  // token rows of gate_up, and rank rows, arrive by cp.async
  bool sum;
  unsigned exchanges = 0;  // between the warpgroups
  // A tile of gate_up that is stored but not yet signalled, or -1. A release waits until all writes
  // of the block have landed.
  int stored = -1;

  __device__ void signal(const LayerParams& p) {
    // one thread's, behind the warpgroup's barrier
    if (stored >= 0 && thread_here() % 128 == 0) add_release(&p.counters.tile_done[stored], 1);
    stored = -1;
  }
};

// Iterates over the terms of some pieces at one seam. The whole warp calls it; each lane holds one
// term, loaded ahead.
class EntryWalk {
 public:
  EntryWalk() = default;
  __device__ EntryWalk(const LayerParams& p, const Tables& tables, const Item& item)
      : entries_(tables.entries[item.seam()]),
        pieces_(tables.pieces),
        terms_(p.deltas.max_terms),
        at_(item.first_piece * p.deltas.max_terms),
        end_(item.last_piece * p.deltas.max_terms) {
    load();
  }

  // Advances; false if there are no more.
  __device__ bool next() {
    settle();
    while (left_ == 0) {
      at_ += 32;
      if (at_ >= end_) return false;
      load();
      settle();
    }
    from_ = __ffs(left_) - 1;
    left_ &= left_ - 1;
    return true;
  }
  // Sum of the ranks of all terms.
  __device__ int total_rank() {
    int total = __reduce_add_sync(0xFFFFFFFF, rank_);
    for (int i = at_ + 32; i < end_; ++i) total += entries_[i].rank;
    return total;
  }
  // The rank of the term that next() found.
  __device__ int rank() const { return of(rank_); }
  __device__ int column() const { return of(column_); }
  __device__ const unsigned char* a() const { return of(a_); }
  __device__ const unsigned char* b() const { return of(b_); }
  __device__ int begin() const { return of(begin_); }
  __device__ int end() const { return of(piece_end_); }

 private:
  __device__ int of(int value) const { return __shfl_sync(0xFFFFFFFF, value, from_); }
  __device__ const unsigned char* of(const unsigned char* value) const {
    return reinterpret_cast<const unsigned char*>(
        __shfl_sync(0xFFFFFFFF, reinterpret_cast<unsigned long long>(value), from_));
  }
  // Issues the loads; settle() is the first use of their results.
  __device__ void load() {
    settled_ = false;
    const int mine = at_ + static_cast<int>(threadIdx.x) % 32;
    rank_ = 0;
    if (mine < end_) {
      const DeltaEntry& entry = entries_[mine];
      rank_ = entry.rank;
      column_ = entry.column;
      a_ = entry.a;
      b_ = entry.b;
      const ExpertPiece& piece = pieces_[terms_ == 1 ? mine : mine / terms_];
      begin_ = piece.begin;
      piece_end_ = piece.end;
    }
  }
  __device__ void settle() {
    if (settled_) return;
    settled_ = true;
    left_ = __ballot_sync(0xFFFFFFFF, rank_ != 0);
  }

  const DeltaEntry* entries_;
  const ExpertPiece* pieces_;
  int terms_;
  int at_, end_, from_;
  unsigned left_;
  bool settled_;
  // this lane's
  int rank_, column_, begin_, piece_end_;
  const unsigned char *a_, *b_;
};

// The stages for this many k16 steps of adapters: at least one, which signals the last.
template <class S>
__device__ inline int delta_stages(int steps) {
  return max((steps + S::delta_steps - 1) / S::delta_steps, 1);
}

// Iterates over the k16 steps of a tile's terms.
class StepWalk {
 public:
  StepWalk() = default;
  __device__ StepWalk(const LayerParams& p, const Tables& tables, const Item& item)
      : entries_(p, tables, item) {}

  __device__ bool next() {
    if (++step_ < steps_) return true;
    if (!entries_.next()) return false;
    step_ = 0;
    steps_ = entries_.rank() / 16;
    return true;
  }
  __device__ int count() { return entries_.total_rank() / 16; }  // of all that are to come
  __device__ int step() const { return step_; }
  __device__ int steps() const { return steps_; }  // of this term
  __device__ const EntryWalk& entry() const { return entries_; }

 private:
  EntryWalk entries_;
  int step_ = 0, steps_ = 0;
};

}  // namespace motley::kernels::cuda::grouped
