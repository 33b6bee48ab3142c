// Parameters of the grouped expert kernels and traits of their tiles. A pair is one (token, expert)
// choice; a place is its position in the plan; a tile is a run of places of one expert against some
// rows of its weights; a piece is the places of a tile that share a label.
#pragma once

#include <cuda.h>

#include "kernels/cuda/experts/grouped/kernels.h"
#include "kernels/cuda/experts/grouped/weight_formats.cuh"
#include "kernels/cuda/primitives/launch.cuh"
#include "kernels/cuda/primitives/ptx.cuh"
#include "kernels/input_rounding.h"

namespace motley::kernels::cuda::grouped {

inline constexpr int permute_block = 128;  // places that one flag of the permutation covers
inline constexpr int permute_lanes = 6;    // rows in flight in a block, at most
inline constexpr int max_stages = 32;
inline constexpr int min_stages = 3;
// The most pairs that a block sorts by itself; with adapters, pairs times the terms of a label; and
// for small blocks.
inline constexpr int inside_pairs = 256;
inline constexpr int inside_lora_pairs = 128;
inline constexpr int inside_small_pairs = 64;
inline constexpr int rank_block = 32;  // rows of A that a shrink multiplies at a time

// The adapters of a batch at one seam.
struct SeamDeltas {
  Bf16* rank_rows;  // [pairs, pitch] by place
  int pitch;
  int* done;  // [tiles] pieces whose rank rows are complete
};

// The counters of a run are zero when it begins. A run zeroes the counters of the next run, which
// are those that the previous run used.
struct Counters {
  int* next_item;    // [2] for gate_up and for down
  int* next_shrink;  // [2] of seams
  int* next_permuted;
  int* tile_done;   // [tiles] warpgroups that have stored their part of h
  int* token_done;  // [tokens, ceil(hidden / 64)] warpgroups that have stored their part of down
  int* permuted;    // [pairs / permute_block + 1] rows of x_sorted that are complete
  int* next_run;    // `count` numbers
  int count;
};

struct LayerParams {
  int tokens, pairs, top_k, experts, hidden, inner;
  int down_columns;  // of packed down; more than inner where its inputs are arranged
  int tile_places;
  const Bf16* x;  // [tokens, hidden]
  const int* ids;
  const float* routing_weights;
  const unsigned char* gate_up;  // packed codes; bf16 is read by tensor map
  const unsigned char* down;
  HalfType half_scales;                          // of int4_any
  const float* row_scales[2];                    // of gate_up and down, where the format has them
  const float *gate_bias, *up_bias, *down_bias;  // or null
  ExpertActivation activation;
  float swiglu_limit, swiglu_alpha;
  Bf16* h;        // [pairs, inner] by place
  Bf16* partial;  // [pairs, hidden] by place, rounded once, without the routing weight
  // [pairs, hidden] by place; where inputs are arranged, [pairs, columns] of the phase.
  Bf16* x_sorted;
  RowCodes inputs;   // the phase's by place, in place of x_sorted, where token rows are codes
  RowCodes h_codes;  // in place of h, if gate_up's tiles round it
  InputRounding h_rounding;
  bool row_scaled_codes;   // each row of weights and each token row has one scale
  bool tile_scaled_codes;  // else 128 rows of down, 64 of gate or up have the same in a blob
  void* out;               // [tokens, hidden]
  bool out_f32;
  ExpertPlan plan;
  Counters counters;
  SeamDeltas seam[2];
  const int* labels;  // [tokens]
  PlanDeltas deltas;
  bool f8_factors;  // FP8, with a scale for each row
};

// The items that a launch processes.
enum class Phase : int { gate_up, down, both };

using Gather = GroupedTiles::Gather;

struct LaunchParams {
  Phase phase;
  Gather gather;
  bool inside;  // every block sorts the pairs by itself
  bool sum;     // the last down tile of a token sums its experts
  // Token rows of tiles are in x_sorted or inputs, complete; those of shrinks are not.
  bool arranged;
  int depth;  // stages of the ring
  int token_bytes;
  int permute_lanes;
  int gate_up_tiles, down_tiles;  // row tiles of an expert
};

struct KernelMaps {
  CUtensorMap gate_up, down;  // boxes of 128 or 64 rows
  CUtensorMap x_row;          // boxes of one row of x
  CUtensorMap h[2];           // boxes of 8 and of 64 rows
  CUtensorMap x_sorted[2];    // or inputs
};

// A kernel's tiles: `warpgroups` consumers, each with `blocks` blocks of 64 rows. All shapes go
// through k in the same order, so that results do not depend on the shape. `small`: for few tokens.
template <PackedFormat Format, int warpgroups_, int blocks_, bool lora_, bool small_ = blocks_ == 1>
struct TileShape {
  static constexpr BlobLayout layout = Format::layout;
  using Decoder = typename Format::Decoder;
  using Bf16Decoder = typename Format::Bf16Decoder;
  static constexpr float unit = Format::unit;
  static constexpr int warpgroups = warpgroups_;
  static constexpr int blocks = blocks_;
  static constexpr bool lora = lora_;
  static constexpr bool shrinks = lora && small_;  // otherwise rank rows come from a launch before
  static constexpr bool bf16 = Format::format == ExpertFormat::bf16;
  static constexpr bool small = small_;  // decode: token rows may be loaded by boxes
  static constexpr DType code_type = Format::code_type;
  static constexpr bool coded_inputs = code_type != DType::bf16;
  // Products by mma.sync, not by wgmma.
  static constexpr bool by_warps = small && !bf16 && !coded_inputs;
  // Lanes read weights from the stage themselves.
  static constexpr bool every_lane = Format::source == OperandSource::registers;
  // A tile of gate_up is signalled as stored only during the products of the next one.
  static constexpr bool signals_late = bf16 && !small;
  static constexpr int rows = warpgroups * blocks * 64;
  // The narrowest token side. From 64 on tokens are the rows of all products of codes.
  static constexpr int least_width = coded_inputs && blocks == 2 ? 64 : 8;
  static constexpr int threads = 128 * (warpgroups + 1);
  static constexpr int atoms = Format::stage_k / 64;  // of 64 k each, per stage
  // slots of a token that the sum loads at a time
  static constexpr int sum_ahead = warpgroups == 1 ? 8 : 4;
  // pairs that one block can sort
  static constexpr int inside = !small            ? 0
                                : warpgroups == 1 ? inside_small_pairs
                                : lora            ? inside_lora_pairs
                                                  : inside_pairs;
  static constexpr int stage_k = 64 * atoms;
  static constexpr int block_bytes = Format::block_bytes;  // of 64 rows
  static constexpr int weight_load = warpgroups * blocks * block_bytes;
  // a shrink's stage has rank_block rows of A; its MMAs read 64
  static constexpr int delta_bytes = shrinks ? rank_block * 128 * atoms : 0;
  // Scales of token rows that are codes lie behind the weights.
  static constexpr int token_scales = weight_load;
  static constexpr int token_scale_bytes = coded_inputs ? 128 * int{sizeof(float)} : 0;
  static constexpr int tile_load = weight_load + token_scale_bytes;
  static constexpr int weight_bytes =
      (tile_load > delta_bytes ? tile_load + 1023 : delta_bytes + 1023) / 1024 * 1024;
  // A shrink's stage has more k than a tile's where the space of the weights allows; token rows
  // follow A.
  static constexpr int shrink_atoms = bf16 && rows >= 128 ? 2 : atoms;
  static constexpr int shrink_k = 64 * shrink_atoms;
  static constexpr int shrink_tokens =
      shrink_atoms > atoms ? rank_block * 128 * shrink_atoms : weight_bytes;
  static_assert(!shrinks || shrink_atoms == atoms ||
                shrink_tokens + 16 * 2 * (shrink_k - stage_k) <= weight_bytes);
  // k16 steps of an adapter per stage
  static constexpr int delta_steps = bf16 ? 4 : 2;
  static_assert(rows * 32 * delta_steps <= weight_bytes);
};

// The widths of a tile's token side.
template <class S>
__device__ inline int width_for(int count) {
  if constexpr (S::least_width == 64) return count <= 64 ? 64 : 128;
  return count <= 8     ? 8
         : count <= 16  ? 16
         : count <= 32  ? 32
         : count <= 64  ? 64
         : count <= 128 ? 128
                        : 160;
}

// FP8: the scales of the rows of packed A, which follow all its numbers.
__device__ inline const float* a_scales(const unsigned char* a, int in, int rank) {
  return reinterpret_cast<const float*>(a +
                                        static_cast<std::size_t>((in + 127) / 128 * 128) * rank);
}

// Where a kernel finds the plan: in global memory, or in its block's shared memory.
struct Tables {
  const ExpertTile* tiles;
  const int* tokens;  // of a place
  const int* places;  // by pair; from `routed` on: no expert
  int tile_count;
  int routed;
  const int* slots;  // by token: its pairs that have an expert; or null
  const int* piece_begin;
  const ExpertPiece* pieces;
  const DeltaEntry* entries[2];  // by seam: [pieces, max_terms]
};

__device__ inline int load_l2(const int* p) { return __ldcg(p); }

}  // namespace motley::kernels::cuda::grouped
