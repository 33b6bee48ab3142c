// What the tensor cores' attention kernels are told, and how they are cut.
//
// A tile is 64 or 128 packed rows of one sequence and one kv head: the query heads of a kv head,
// token by token. So keys and values are read once for all heads that share them. Positions come in
// blocks of 64, cut at multiples of 64.
#pragma once

#include <cstdint>

#include "kernels/cuda/ptx.cuh"

namespace motley::kernels::cuda::tiles {

constexpr int block_positions = 64;
constexpr int most_sequences = 1024;  // of a launch
constexpr int panel_bytes = block_positions * 128;

// A panel is 64 rows x 64 columns of bf16 in the 128-byte swizzle: 8 KB. Queries, keys and values
// are panels side by side.
template <int key_columns, int value_columns, bool many_rows>
struct Shape {
  static constexpr int key_width = key_columns;
  static constexpr int value_width = value_columns;
  // One latent is key and value: values are the keys' first columns. Two warpgroups hold half of
  // the value columns each, for the same 64 rows.
  static constexpr bool latent = key_columns > 256;
  static constexpr int warpgroups = many_rows || latent ? 2 : 1;
  static constexpr int rows = many_rows && !latent ? 128 : 64;
  static constexpr int own_values = latent ? value_columns / 2 : value_columns;
  // Queries of the next tile are fetched by warps of their own.
  static constexpr bool query_warps = many_rows && !latent;
  static constexpr int query_buffers = query_warps ? 2 : 1;
  // The next block's scores are under way while this one's values are summed.
  static constexpr bool ahead = many_rows && !latent;
  // There is no room for a second set of sums beside a latent's.
  static constexpr bool folds = !latent;
  // Few rows have the sums of all units before in shared memory: spilled registers would cost as
  // much bandwidth as half the keys.
  static constexpr int shared_sums = folds && !many_rows ? 32 : 0;               // rows
  static constexpr int most_rows = many_rows || latent ? 1 << 30 : shared_sums;  // of a sequence
  static constexpr int sums_pitch = (value_columns + 8) * 4;  // bytes of a row, without conflicts
  static constexpr int sums_bytes = shared_sums * sums_pitch;
  static constexpr int blocks_per_sm = many_rows || key_columns > 128 ? 1 : 2;
  static constexpr int consumers = 128 * warpgroups;
  // With a warpgroup of producers the consumers can take their registers.
  static constexpr bool grows = warpgroups == 2;
  static constexpr int copy_warps = 2;
  static constexpr int threads = consumers + (query_warps ? 256 : grows ? 128 : 64);
  static constexpr int consumer_registers = query_warps ? 208 : 232;
  static constexpr int producer_registers = query_warps ? 48 : 40;
  static constexpr int query_threads = query_warps ? threads - consumers - 32 * copy_warps : 0;

  static constexpr int key_panels = key_columns / 64;
  static constexpr int value_panels = latent ? 0 : value_columns / 64;  // of their own
  static constexpr int stage_bytes = (key_panels + value_panels) * panel_bytes;
  static constexpr int query_bytes = rows / 64 * key_panels * panel_bytes;
  static constexpr int room = (blocks_per_sm == 2 ? 113 : 227) * 1024 - 1024 -
                              (most_sequences + 128) * 4 - query_buffers * query_bytes - sums_bytes;
  static constexpr int stages = room / stage_bytes < 6 ? room / stage_bytes : 6;
  static_assert(stages >= 2);
  static constexpr int shared_bytes =
      1024 + query_buffers * query_bytes + stages * stage_bytes + sums_bytes;
};

// Pages as copies read them; strides in elements.
struct PageView {
  const Bf16* data;
  std::int64_t page_stride, token_stride, head_stride;
};

struct TileParams {
  PageView keys, values;
  const std::int32_t* seq_begin;
  const std::int32_t* positions;
  const std::int32_t* table;
  std::int64_t table_stride;
  int page_shift;  // log2 of a page in positions
  int sequences;
  // Only sequences of least..most packed rows are this launch's.
  int least_rows, most_rows;
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

// Units are what a softmax runs over on its own; they are put together in order. Their cuts depend
// on nothing but the position: every 256 positions, every 1024 from 8192 on, every 4096 from 65536.
constexpr int unit_positions = 256;

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
