// What the tensor cores' attention kernels are told, and how they are cut.
//
// A tile is 64 or 128 packed rows of one sequence and one kv head: the query heads of a kv head,
// token by token. So keys and values are read once for all heads that share them. Positions come in
// blocks of 64 or 128, cut at multiples of that.
#pragma once

#include <cstdint>

#include "kernels/cuda/primitives/ptx.cuh"

namespace motley::kernels::cuda::tiles {

constexpr int max_sequences = 256;                         // of a launch
constexpr int schedule_bytes = max_sequences * 24 + 1024;  // and barriers
constexpr int query_panel_bytes = 64 * 128;

// Units are what a softmax runs over on its own; they are put together in order. Their cuts depend
// on nothing but the position: every 256 positions, every 1024 from 8192 on, every 4096 from 65536.
constexpr int unit_positions = 256;

// A panel is 64 columns of bf16 in the 128-byte swizzle. Keys and values are panels of a block's
// positions, side by side, and so are queries (of their own number of rows).
template <int key_columns, int value_columns, bool in_units>
struct Shape {
  static constexpr int key_width = key_columns;
  static constexpr int value_width = value_columns;
  // One latent is key and value: values are the keys' first columns. Two warpgroups hold half of
  // the value columns each, for the same 64 rows.
  static constexpr bool latent = key_columns > 256;
  static constexpr int warpgroups = 2;
  static constexpr int rows = latent ? 64 : 128;
  static constexpr int blocks_per_sm = 1;
  static constexpr int own_values = latent ? value_columns / 2 : value_columns;
  // Queries of the next tile are fetched by a warp of their own.
  static constexpr bool query_warp = !latent;
  static constexpr int query_buffers = query_warp && key_columns < 128 ? 2 : 1;
  // The next block's scores are under way while this one's values are summed.
  static constexpr bool ahead = !latent;
  static constexpr bool folds = in_units;
  // A tile's positions are cut at multiples of this.
  static constexpr int cut_grain = unit_positions;
  // Positions that a softmax takes at once. Registers have room for the sums of earlier units, or
  // for more of them.
  static constexpr int block = latent || folds ? 64 : 128;
  static constexpr int panel_bytes = block * 128;
  // Powers of two that the largest score may grow by before sums are scaled. In one order with few
  // rows it may not grow at all.
  static constexpr float slack = block == 128 ? 8 : 0;
  static constexpr int consumers = 128 * warpgroups;
  static constexpr int copiers = 1;  // that tell of a block
  // Two that copy, one for queries and one that schedules; consumers take their registers.
  static constexpr int threads = consumers + 128;
  static constexpr int items_taken = consumers / 32 + (latent ? 1 : 3);  // warps
  static constexpr int consumer_registers = latent ? 232 : 224;
  static constexpr int producer_registers = latent ? 40 : 56;

  static constexpr int key_panels = key_columns / 64;
  static constexpr int value_panels = latent ? 0 : value_columns / 64;  // of their own
  static constexpr int query_bytes = rows / 64 * key_panels * query_panel_bytes;
  static constexpr int room = 227 * 1024 - 1024 - schedule_bytes - query_buffers * query_bytes;
  // As many of both, and one more of keys if there is room.
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

// Sequences of few packed rows: positions are on the products' side of 64, rows on the other.
template <int key_columns, int value_columns, int packed_rows>
struct FewShape {
  static constexpr int key_width = key_columns;
  static constexpr int value_width = value_columns;
  static constexpr bool latent = key_columns > 256;
  static constexpr bool folds = !latent;
  static constexpr int block = 64;
  // Units of a latent are not kept apart.
  static constexpr int cut_grain = latent ? block : unit_positions;
  static constexpr int panel_bytes = block * 128;
  static constexpr int rows = packed_rows;
  // A softmax waits once for so many blocks. A latent's are large: one is copied beside another.
  static constexpr int blocks_together = latent                                         ? 1
                                         : rows > 16 || (key_columns > 128 && rows > 8) ? 2
                                                                                        : 4;
  static constexpr int consumers = 128;
  static constexpr int copy_warps_each = 4;  // of keys, of values
  static constexpr int copiers = 32 * copy_warps_each;
  static constexpr int threads = consumers + (latent ? 1 : 2) * copy_warps_each * 32;
  // Consumers take what producers can do without.
  static constexpr bool grows = !latent;
  // Small heads need two blocks beside each other to keep up with the copies.
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
  static constexpr int ring_bytes = key_slots * stage_bytes;
  static constexpr int shared_bytes = 1024 + ring_bytes + other_bytes;
};

// Pages as copies read them; strides in elements.
struct PageView {
  const Bf16* data;
  std::int64_t page_stride, token_stride, head_stride;
};

struct TileParams {
  // Keys and values in boxes of 64 columns and sixteen tokens; values' last ones token by token
  // (latents: keys'). What lies outside reads as zero.
  CUtensorMap key_pages, value_pages, last_tokens;
  // Of keys' last columns, where all kv heads share them: panels from own_key_panels on.
  CUtensorMap shared_pages;
  int own_key_panels;
  int page_tokens;
  PageView keys, values;
  const std::int32_t* seq_begin;
  const std::int32_t* positions;
  const std::int32_t* table;
  std::int64_t table_stride;
  int page_shift;  // log2 of a page in positions
  int sequences;
  // Only sequences of least..most packed rows are this launch's.
  int least_rows, max_rows;
  int kv_heads;
  int group;                    // query heads of a kv head
  std::uint32_t group_inverse;  // 2^32 / group, rounded up; for more than one
  float scale;                  // times log2(e)
  int window;
  const float* sinks;
  const void* q;
  bool q_f32;
  std::int64_t q_stride, q_head_stride;
  void* out;
  bool out_f32;
  std::int64_t out_stride, out_head_stride;
  bool whole;  // never cut
  int slots;   // blocks that run side by side
  float* partials;
  std::int64_t partial_count;
  std::int32_t* counters;
  std::int64_t counter_count;
  int partial_rows;  // of a partial result: no fewer than any tile has
};

// The token of a packed row. Exact while rows * group^2 stays below 2^32.
__device__ inline int token_of(const TileParams& p, int packed) {
  return p.group == 1 ? packed
                      : static_cast<int>(__umulhi(static_cast<unsigned>(packed), p.group_inverse));
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
