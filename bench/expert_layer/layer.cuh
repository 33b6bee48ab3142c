// Shapes, tables and parameters of one expert layer (Qwen3-30B-A3B). A "pair" is one (token,
// expert) choice; a "position" is a pair's place after sorting by expert; a "segment" is a run of
// positions of one expert that one tile's N side covers.
#pragma once

#include <cuda.h>

#include "ptx.cuh"

namespace expert_layer {

constexpr int kHidden = 2048, kInner = 768, kExperts = 128, kTopK = 8;
constexpr int kGateUpRows = 2 * kInner;  // rows of the gate_up image: 8 gate, 8 up, 8 gate ...
constexpr int kGroup = 128;              // k a scale covers (int4)
// 64 rows x 128 k of int4: word of k16 step s of thread t at (s / 4) 2048 + t 16 + (s % 4) 4, then
// 64 bf16 scales.
constexpr int kBlobBytes = 4096 + 128;

constexpr int kPermuteBlock = 128;  // positions a flag of the permutation covers
constexpr int kPermuteLanes = 6;    // rows on their way in a block, at most
constexpr int kMaxStages = 32;

enum TracePoint : int {
  kStarted,
  kPlanned,
  kMultiplied,
  kGateUpStored,
  kActReady,
  kDownStored,
  kSummed,
  kTracePoints
};

enum class Format : int { kBf16, kInt4 };

struct Segment {
  int expert, start, count, width;  // width: N of the tile, >= count
};

// Written by the plan on the device, read by everything behind it.
struct Plan {
  Segment* segments;
  int* segment_count;  // [1]
  int* token_of;       // [pairs] position -> token
  int* position_of;    // [pairs] token * kTopK + j -> position
  int* block_counts;   // [blocks, kExperts] scratch of the sort
  int* next_item;      // [4] work-list cursors, one a launch
  int* segment_done;   // [segments] gate_up warpgroups that have finished
  int* token_done;     // [tokens, kHidden / 64] down warpgroups that have finished
  int* permuted;       // [pairs / kPermuteBlock + 1] rows of x_sorted that are there
};

// A kernel's tiles. kBlocks: 64-row blocks a consumer warpgroup holds. kSplit: both warpgroups work
// on the same 64 rows and share the k of every stage, so that a single token's few tiles spread
// over all multiprocessors.
// kBatch: k16 steps of int4 decoded at a time. kLora: items and k-steps of adapters are compiled
// in.
template <Format kFormat_, int kBlocks_, bool kSplit_, int kBatch_ = 2, bool kLora_ = false>
struct TileShape {
  static constexpr int kBatch = kBatch_;
  static constexpr bool kLora = kLora_;
  static constexpr Format kFormat = kFormat_;
  static constexpr int kBlocks = kBlocks_;
  static constexpr bool kSplit = kSplit_;
  static_assert(!kSplit || kBlocks == 1);
  static constexpr bool kInside = kBlocks == 1;  // sort and gather inside the kernel
  static constexpr int kRows = kSplit ? 64 : kBlocks * 128;
  static constexpr int kPartK =
      kFormat == Format::kBf16 ? 64 : 128;                 // k of a stage a warpgroup sees
  static constexpr int kK = kSplit ? 2 * kPartK : kPartK;  // k of a stage
  static constexpr int kAtoms = kK / 64;                   // 128-byte columns of tokens
  static constexpr int kWeightLoad = kBlocks * 2 * (kFormat == Format::kBf16 ? 8192 : kBlobBytes);
  static constexpr int kWeightBytes = (kWeightLoad + 1023) / 1024 * 1024;
  static constexpr int kGateUpTiles = kGateUpRows / kRows, kDownTiles = kHidden / kRows;
  // arrivals on segment_done that make a segment's act complete: warpgroups that store
  static constexpr int kGateUpArrivals = kGateUpTiles * (kSplit ? 1 : 2);
  // bytes of LoRA B images a gate_up and a down tile take for one adapter
  static constexpr int kLoraGateUp = kRows / 64 * 2 * 2048, kLoraDown = kRows / 64 * 2048;
};

constexpr int kRank = 16, kMaxAdapters = 32;  // of a batch

// Adapters of a batch, rank 16 on gate, up and down of every expert. A matrices are rows (16 of
// gate, then 16 of up; 16 of down) that the shrink items multiply like weights. B matrices are
// 32B-swizzled images [row block of 64][k16 step][64 rows x 16], on the rows of the weights' image:
// step 0 is gate's (zeros in up's rows), step 1 up's.
struct LoraParams {
  const int* adapter_of;  // [tokens]; -1: none
  float scale;
  const uint8_t *gate_up_b, *down_b;        // [adapter, expert, images]
  Bf16 *gate_up_rank, *down_rank;           // [pairs, 32], [pairs, 16]: rank-space rows by position
  int *gate_up_rank_done, *down_rank_done;  // [segments] shrink items done
};

// Where a kernel finds the sort: global memory, or its own shared memory.
struct Tables {
  const Segment* segments;
  const int *token_of, *position_of;
  int segment_count;
  // with adapters: an item of the shrink takes one adapter of a segment
  const int8_t* adapter_of;      // [positions]
  const uint32_t* adapters;      // [segments] bit a: adapter a has rows here
  const uint16_t* shrink_items;  // segment | adapter << 8
  int shrink_count;
};

struct LayerParams {
  int tokens, pairs, max_width;
  const Bf16* x;           // [tokens, kHidden]
  const int* expert_ids;   // [tokens, kTopK]
  const float* pair_gain;  // [tokens, kTopK] router weights
  const uint8_t* gate_up;  // int4 blobs [expert, row128, group, 2]; bf16 goes by tensor map
  const uint8_t* down;
  Bf16* act;       // [pairs + pad, kInner] by position
  Bf16* partial;   // [pairs, kHidden] by position: one rounding to bf16, without the router weight
  Bf16* out;       // [tokens, kHidden]
  Bf16* x_sorted;  // [pairs + pad, kHidden] by position; prefill only
  Plan plan;
  LoraParams lora;
  // The counters of this launch (next_item, segment_done, token_done, permuted) lie in one run of
  // flag_count and start at zero; a launch that sorts inside zeroes those of its successor.
  int* next_flags;
  int flag_count;
  unsigned long long* trace;  // [blocks, kTracePoints] times of each block's steps; null: none
};

struct KernelMaps {
  CUtensorMap gate_up, down;                // boxes of 128 rows
  CUtensorMap gate_up_64, down_64;          // of 64, for split tiles
  CUtensorMap lora_gate_up_a, lora_down_a;  // boxes of 32 and of 16 rows
  CUtensorMap x_row;                        // boxes of one row of x
  CUtensorMap act, act_wide, x[2];          // x: boxes of 8 and of 64 rows of x_sorted
};

// The last time a block passed a point; compiled in only where asked for.
__device__ inline void trace(const LayerParams& p, TracePoint point) {
#ifdef MOTLEY_TRACE
  unsigned long long now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  if (p.trace != nullptr) p.trace[blockIdx.x * kTracePoints + point] = now;
#endif
}

// Widths a tile can take.
__host__ __device__ inline int width_for(int count) {
  return count <= 8     ? 8
         : count <= 16  ? 16
         : count <= 32  ? 32
         : count <= 64  ? 64
         : count <= 128 ? 128
                        : 160;
}

}  // namespace expert_layer
