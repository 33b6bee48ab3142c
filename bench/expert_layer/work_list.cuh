// What a launch does, item by item: the order of tiles that persistent blocks take from an atomic
// cursor. It is topological (a down tile stands behind the gate_up tiles it reads), so whoever
// waits, waits for an item a running block already holds.
#pragma once

#include "layer.cuh"

namespace expert_layer {

// Which items a launch walks.
enum Phase : int { kOnlyGateUp = 0, kOnlyDown = 1, kWholeLayer = 2 };

struct LaunchParams {
  Phase phase;
  int cursor;           // index into Plan::next_item
  int window;           // segments of gate_up ahead of their down tiles
  bool combine_inline;  // the last down tile of a token sums its experts
  int depth;            // stages of the ring
  int token_bytes;      // a stage's token area: max_width x 128 x (k a stage / 64)
  bool
      in_turn;  // items go to blocks in turn, not to whoever is free: best when each has one or two
  bool gather;  // tiles of 256 rows: token rows by cp.async from x instead of the permuted copy
  int permute_lanes;  // rows of x a block permutes at a time
};

enum ItemKind : int { kEnd = -1, kGateUp = 0, kDown = 1, kShrinkGateUp = 2, kShrinkDown = 3 };

struct Item {
  int kind, row_tile, segment, expert, start, count, width;
  uint32_t adapters;  // of the segment; of a shrink item: its one
};

// Item i of the list. Whole layer: gate_up of window 0, then for each window its successor's
// gate_up and its own down, so that act is still in L2 when it is read.
__device__ inline Item decode_item(int i, int segments, int gate_up_tiles, int down_tiles,
                                   const LaunchParams& l) {
  Item item{};
  auto pick = [&](int kind, int first_segment, int j) {
    int tiles = kind == kGateUp ? gate_up_tiles : down_tiles;
    item.kind = kind, item.segment = first_segment + j / tiles, item.row_tile = j % tiles;
  };
  item.kind = kEnd;
  if (l.phase != kWholeLayer) {
    int tiles = l.phase == kOnlyGateUp ? gate_up_tiles : down_tiles;
    if (i < segments * tiles) pick(l.phase == kOnlyGateUp ? kGateUp : kDown, 0, i);
    return item;
  }
  int window = min(l.window, segments), head = window * gate_up_tiles;
  if (i >= segments * (gate_up_tiles + down_tiles)) return item;
  if (i < head) {
    pick(kGateUp, 0, i);
    return item;
  }
  i -= head;
  // full rounds: gate_up of window r + 1 and down of window r, as long as the former is whole
  int round = window * (gate_up_tiles + down_tiles), rounds = segments / window - 1;
  if (i < rounds * round) {
    int r = i / round, j = i % round;
    if (j < head) {
      pick(kGateUp, (r + 1) * window, j);
    } else {
      pick(kDown, r * window, j - head);
    }
    return item;
  }
  i -= rounds * round;
  int rest = segments % window;  // a last, partial window, then every down tile that is left
  if (i < rest * gate_up_tiles) {
    pick(kGateUp, segments - rest, i);
  } else {
    pick(kDown, rounds * window, i - rest * gate_up_tiles);
  }
  return item;
}

// Decode: gate_up, down; with adapters the shrinks of either's input before it.
template <class S>
__device__ inline Item decode_inside_item(int i, const Tables& tables) {
  Item item;
  item.kind = kEnd, item.row_tile = 0, item.adapters = 0;
  int gate_up = tables.segment_count * S::kGateUpTiles, down = tables.segment_count * S::kDownTiles;
  int shrinks = S::kLora ? tables.shrink_count : 0;
  bool second = i >= shrinks + gate_up;
  if (second) i -= shrinks + gate_up;
  if (S::kLora && i < shrinks) {
    item.kind = second ? kShrinkDown : kShrinkGateUp;
    item.segment = tables.shrink_items[i] & 0xFF;
    item.adapters = 1u << (tables.shrink_items[i] >> 8);
    return item;
  }
  i -= shrinks;
  if (second && i >= down) return item;
  constexpr int kFirst = S::kGateUpTiles, kSecond = S::kDownTiles;
  item.kind = second ? kDown : kGateUp;
  item.segment = second ? i / kSecond : i / kFirst;
  item.row_tile = second ? i % kSecond : i % kFirst;
  if (S::kLora) item.adapters = tables.adapters[item.segment];
  return item;
}

// Items on their way from the scheduling thread to the others of a block.
constexpr int kItemSlots = 4;
struct ItemQueue {
  Item* items;
  uint32_t full, empty;
  int slot = 0;
  uint32_t parity = 0;
  __device__ void next() {
    if (++slot == kItemSlots) slot = 0, parity ^= 1;
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

}  // namespace expert_layer
