// Parameters and tile shapes of the tensor-core attention kernels.
//
// A tile is 64 or 128 packed rows of one sequence and one kv head: the query heads of the kv head,
// token by token. So keys and values are read once for all heads that share them. Positions are
// processed in blocks of 64 or 128, aligned to multiples of that.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention/gate.cuh"
#include "kernels/cuda/attention/instances.h"
#include "kernels/cuda/primitives/ptx.cuh"

namespace motley::kernels::cuda::tiles {

constexpr int max_sequences = 256;                         // of a launch
constexpr int schedule_bytes = max_sequences * 24 + 1024;  // and barriers
constexpr int query_panel_bytes = 64 * 128;

// A unit of positions has a softmax of its own; units are joined in order. Their boundaries depend
// on the position only: every 256 positions, every 1024 from 8192 on, every 4096 from 65536 on.
constexpr int unit_positions = 256;

// A panel is 64 columns of bf16 in the 128-byte swizzle. The keys and values of a block are
// adjacent panels, and so are queries.
template <int key_columns, int value_columns, bool in_units>
struct Shape {
  static_assert(key_columns % 64 == 0 && value_columns % 64 == 0, "whole panels");
  static constexpr int key_width = key_columns;
  static constexpr int value_width = value_columns;
  static constexpr bool latent = key_columns == latent_width;
  static constexpr bool gates = takes_gates(key_columns, value_columns);
  static constexpr bool coded = false;  // codes.cuh
  static constexpr bool folds = in_units && keeps_units(value_columns);
  static constexpr bool halves = halves_columns(value_columns, in_units);
  static constexpr int warpgroups = 2;
  static constexpr int rows = halves ? 64 : 128;
  static constexpr int blocks_per_sm = 1;
  static constexpr int own_values = halves ? value_columns / 2 : value_columns;
  // A separate warp loads the queries of the next tile.
  static constexpr bool query_warp = !latent;
  static constexpr int query_buffers = query_warp && key_columns < 128 ? 2 : 1;
  // The scores of the next block are computed during the sums of this block's values.
  static constexpr bool ahead = !latent;
  // A tile's positions are split at multiples of this.
  static constexpr int cut_grain = unit_positions;
  // Positions per softmax. Registers hold either many sums or more scores.
  static constexpr int block = folds || value_columns > 128 ? 64 : 128;
  static constexpr int panel_bytes = block * 128;
  // The largest score may grow by this power of two before sums are rescaled. For the order of sums
  // of few rows it must be 0.
  static constexpr float slack = folds || !keeps_units(value_columns) ? 0 : 8;
  static constexpr int consumers = 128 * warpgroups;
  static constexpr int block_arrivals = 1;  // arrivals that signal a block
  // One producer warp each for keys, values, queries and scheduling; consumers get their registers.
  static constexpr int threads = consumers + 128;
  static constexpr int items_taken = consumers / 32 + (latent ? 1 : 3);  // warps
  static constexpr int consumer_registers = value_columns > 128 ? 232 : 224;
  static constexpr int producer_registers = value_columns > 128 ? 40 : 56;

  static constexpr int key_panels = key_columns / 64;
  static constexpr int value_panels = latent ? 0 : value_columns / 64;  // of their own
  static constexpr int query_bytes = rows / 64 * key_panels * query_panel_bytes;
  static constexpr int room = 227 * 1024 - 1024 - schedule_bytes - query_buffers * query_bytes;
  // As many slots for keys as for values, and one more for keys if it fits.
  static constexpr int fit = room / ((key_panels + value_panels) * panel_bytes);
  static constexpr int value_slots = latent ? 0 : fit < 6 ? fit : 6;
  static constexpr int left = room / panel_bytes - value_slots * value_panels;
  static constexpr int key_slots = latent                            ? fit
                                   : left / key_panels > value_slots ? value_slots + 1
                                                                     : value_slots;
  static constexpr int ring_bytes =
      (key_slots * key_panels + value_slots * value_panels) * panel_bytes;
  static constexpr int shared_bytes = 1024 + query_buffers * query_bytes + ring_bytes;
};

// Sequences of few packed rows: positions are the M = 64 side of the MMA, rows the N side.
template <int key_columns, int value_columns, int packed_rows>
struct FewShape {
  static_assert(key_columns % 64 == 0 && value_columns % 64 == 0, "whole panels");
  static constexpr int key_width = key_columns;
  static constexpr int value_width = value_columns;
  static constexpr bool latent = key_columns == latent_width;
  static constexpr bool gates = takes_gates(key_columns, value_columns);
  static constexpr bool coded = false;
  static constexpr bool folds = keeps_units(value_columns);
  static constexpr int block = 64;
  static constexpr int cut_grain = folds ? unit_positions : block;
  static constexpr int panel_bytes = block * 128;
  static constexpr int rows = packed_rows;
  // Blocks per softmax, which synchronises once for all of them. Wide blocks are large: one is
  // copied while one is processed.
  static constexpr int blocks_together = key_columns > 256   ? 1
                                         : key_columns > 192 ? (rows > 16 ? 1 : 2)
                                         : rows > 16 || (key_columns > 128 && rows > 8) ? 2
                                                                                        : 4;
  // Scores of two blocks are not in flight together: the assembler would run their products one by
  // one (C7515). A block of wide heads takes far longer to arrive than that costs.
  static constexpr bool scores_apart = key_columns == 256;
  static_assert(blocks_together * rows % 16 == 0);  // what a warp's stores of weights take
  static constexpr int consumers = 128;
  static constexpr int copy_warps_each = 4;  // for keys, and for values
  static constexpr int block_arrivals = 32 * copy_warps_each;
  static constexpr int threads = consumers + (latent ? 1 : 2) * copy_warps_each * 32;
  // Consumers take registers that producers do not need.
  static constexpr bool grows = !latent;
  // Small heads need two resident blocks to keep up with the copies.
  static constexpr int blocks_per_sm = key_columns == 64 && rows <= 16 ? 2 : 1;
  static constexpr int consumer_registers = blocks_per_sm == 2 ? 160 : 240;
  static constexpr int producer_registers = blocks_per_sm == 2 ? 40 : 128;

  static constexpr int key_panels = key_columns / 64;
  static constexpr int sum_panels = value_columns / 64;
  static constexpr int value_panels = latent ? 0 : sum_panels;  // of their own
  static constexpr int stage_bytes = (key_panels + value_panels) * panel_bytes;
  static constexpr int query_bytes = key_panels * rows * 128;
  static constexpr int other_bytes =
      2 * query_bytes + blocks_together * (rows * 128 + 4 * 8 * rows * 4 + 4 * rows * 4);
  static constexpr int room =
      (blocks_per_sm == 2 ? 113 : 227) * 1024 - 1024 - schedule_bytes - other_bytes;
  static constexpr int key_slots = room / stage_bytes < 8 ? room / stage_bytes : 8;
  static constexpr int value_slots = latent ? 0 : key_slots;
  static_assert(key_slots >= blocks_together);  // or a softmax would wait for ever
  static constexpr int ring_bytes = key_slots * stage_bytes;
  static constexpr int shared_bytes = 1024 + ring_bytes + other_bytes;
};

// Pages of KV memory as copies read them; strides in elements.
struct PageView {
  const Bf16* data;
  std::int64_t page_stride, token_stride, head_stride;
};

struct TileParams {
  // Boxes of 64 columns and 16 tokens of keys and values; the last tokens of values (for latents:
  // of keys) are loaded one by one. What lies outside reads as zero.
  CUtensorMap key_pages, value_pages, last_tokens;
  // The last columns of keys, if all kv heads share them: panels from own_key_panels on.
  CUtensorMap shared_pages;
  int own_key_panels;
  int page_tokens;
  PageView keys, values;
  // Of pages of codes only: strides of keys and values are in bytes, and sums of values are
  // multiplied by value_factor.
  const std::uint8_t *key_exponents, *value_exponents;
  float value_factor;
  const std::int32_t* seq_begin;
  const std::int32_t* positions;
  const std::int32_t* table;
  std::int64_t table_stride;
  int page_shift;  // log2 of a page in positions
  int sequences;
  // The launch serves only sequences of least..max packed rows.
  int least_rows, max_rows;
  int kv_heads;
  int group;                    // query heads per kv head
  std::uint32_t group_inverse;  // 2^32 / group, rounded up; for more than one
  float scale;                  // times log2(e)
  int window;
  const float* sinks;
  HeadGates gates;
  const void* q;
  bool q_f32;
  std::int64_t q_stride, q_head_stride;
  void* out;
  bool out_f32;
  std::int64_t out_stride, out_head_stride;
  bool whole;  // never cut
  int slots;   // resident blocks
  float* partials;
  std::int64_t partial_count;
  std::int32_t* counters;
  std::int64_t counter_count;
  int partial_rows;  // of a partial result: at least the rows of any tile
};

// The token of a packed row. Exact while rows * group^2 stays below 2^32.
__device__ inline int token_of(const TileParams& p, int packed) {
  return p.group == 1 ? packed
                      : static_cast<int>(__umulhi(static_cast<unsigned>(packed), p.group_inverse));
}

// What sums of values are multiplied by at the end.
template <class S>
__device__ inline float final_factor(const TileParams& p, float total) {
  const float factor = 1.0F / total;
  return S::coded ? __fmul_rn(factor, p.value_factor) : factor;
}

__device__ inline int unit_begin(int position) {
  return position & ~(position < 8192 ? 255 : position < 65536 ? 1023 : 4095);
}
__device__ inline int unit_index(int position) {
  if (position < 8192) return position / 256;
  if (position < 65536) return 32 + (position - 8192) / 1024;
  return 88 + (position - 65536) / 4096;
}
__device__ inline int unit_length(int position) {
  return position < 8192 ? 256 : position < 65536 ? 1024 : 4096;
}

}  // namespace motley::kernels::cuda::tiles
