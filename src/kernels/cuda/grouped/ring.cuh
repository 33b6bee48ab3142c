// The ring of stages between producers and consumers, and the queue of items.
#pragma once

#include "kernels/cuda/grouped/layer.cuh"

namespace motley::kernels::cuda::grouped {

// Full barriers (the weights' arrival, then the token threads'), then empty ones (one arrival a
// consumer warp).
struct Ring {
  std::uint32_t stages, full, empty, stage_bytes;
  int depth;
  int* steps;  // [depth] of adapters' stages: k16 steps in it; 0: the item ends
  int slot = 0;
  std::uint32_t parity = 0;

  __device__ std::uint32_t data() const { return stages + slot * stage_bytes; }
  __device__ std::uint32_t full_bar() const { return full + 8 * slot; }
  __device__ std::uint32_t empty_bar() const { return empty + 8 * slot; }
  __device__ int before() const { return (slot == 0 ? depth : slot) - 1; }
  // By whole consumer warps, one arrival each, behind a wgmma wait: that is warp-wide, and what a
  // lane read from the stage went into products that are done, so every lane's reads are behind it.
  __device__ void release(int at) const {
    if (threadIdx.x % 32 == 0) bar_arrive(empty + 8 * at);
  }
  __device__ void next() {
    if (++slot == depth) {
      slot = 0;
      parity ^= 1;
    }
  }
};

enum class ItemKind : int { end, gate_up, down, shrink_gate_up, shrink_down };

struct Item {
  ItemKind kind;
  int tile, row_tile;
  int expert, begin, count, width;
  int first_piece, last_piece;  // of a tile; of a shrink: its one

  __device__ bool shrinks() const {
    return kind == ItemKind::shrink_gate_up || kind == ItemKind::shrink_down;
  }
  __device__ int seam() const {
    return kind == ItemKind::gate_up || kind == ItemKind::shrink_gate_up ? 0 : 1;
  }
};

// Item i of a launch: with adapters the shrinks of gate_up's input, then gate_up's tiles, then the
// same for down. The order is topological, so whoever waits, waits for an item that a running block
// holds already.
template <bool lora>
__device__ inline Item item_at(int i, const Tables& tables, const LaunchParams& l) {
  Item item{};
  const int shrinks = lora ? tables.piece_count : 0;
  int tiles = l.phase == Phase::down ? 0 : tables.tile_count * l.gate_up_tiles;
  bool second = l.phase == Phase::down;
  if (!second && i >= shrinks + tiles) {
    i -= shrinks + tiles;
    second = true;
    if (l.phase == Phase::gate_up) return item;
  }
  if (lora && i < shrinks) {
    const ExpertPiece piece = tables.pieces[i];
    item.kind = second ? ItemKind::shrink_down : ItemKind::shrink_gate_up;
    item.tile = piece.tile;
    item.expert = tables.tiles[piece.tile].expert;
    item.begin = piece.begin;
    item.count = piece.end - piece.begin;
    item.width = width_for(item.count);
    item.first_piece = i;
    item.last_piece = i + 1;
    return item;
  }
  i -= shrinks;
  const int row_tiles = second ? l.down_tiles : l.gate_up_tiles;
  item.tile = i / row_tiles;
  if (item.tile >= tables.tile_count) return item;
  item.kind = second ? ItemKind::down : ItemKind::gate_up;
  item.row_tile = i - item.tile * row_tiles;
  const ExpertTile tile = tables.tiles[item.tile];
  item.expert = tile.expert;
  item.begin = tile.begin;
  item.count = tile.count;
  item.width = width_for(item.count);
  if (lora) {
    item.first_piece = tables.piece_begin[item.tile];
    item.last_piece = tables.piece_begin[item.tile + 1];
  }
  return item;
}

// Items on their way from the scheduling thread to the others of a block.
inline constexpr int item_slots = 4;
struct ItemQueue {
  Item* items;
  std::uint32_t full, empty;
  int slot = 0;
  std::uint32_t parity = 0;

  __device__ void next() {
    if (++slot == item_slots) {
      slot = 0;
      parity ^= 1;
    }
  }
  __device__ void put(const Item& item) {
    bar_wait(empty + 8 * slot, parity ^ 1);
    items[slot] = item;
    bar_arrive(full + 8 * slot);
    next();
  }
  // By whole warps; every lane arrives behind its own reads. Consumers read an item in place, to
  // hold fewer registers.
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

// The terms of some pieces at one seam, in order; the next one is on its way while one is used.
struct EntryWalk {
  const DeltaEntry* entries;
  int terms;
  int piece, last, term = 0;
  DeltaEntry ahead;

  __device__ EntryWalk(const LayerParams& p, const Item& item)
      : entries(p.seam[item.seam()].entries),
        terms(p.most_terms),
        piece(item.first_piece),
        last(item.last_piece) {
    load();
  }
  __device__ void load() {
    if (piece >= last) return;
    const auto* const from =
        reinterpret_cast<const int4*>(entries + static_cast<std::size_t>(piece) * terms + term);
    int4 halves[2] = {__ldcg(from), __ldcg(from + 1)};
    ahead = *reinterpret_cast<const DeltaEntry*>(halves);
  }
  // Whether there is another one: it, and the piece that it belongs to.
  __device__ bool take(DeltaEntry& entry, int& of_piece) {
    while (piece < last) {
      entry = ahead;
      of_piece = piece;
      if (entry.rank == 0 || ++term == terms) {
        ++piece;
        term = 0;
      }
      load();
      if (entry.rank > 0) return true;
    }
    return false;
  }
};

}  // namespace motley::kernels::cuda::grouped
