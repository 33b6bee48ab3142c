// Launches of the tensor-core attention kernels.

#include <algorithm>
#include <bit>
#include <limits>

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/shape.cuh"
#include "kernels/cuda/primitives/occupancy.cuh"
#include "kernels/cuda/thresholds.h"
#include "kernels/kv_codes.h"

namespace motley::kernels::cuda {
namespace tiles {
namespace {

Result<void> prepare(const Instance& instance) {
  const auto bytes = static_cast<std::size_t>(instance.shared_bytes);
  MOTLEY_TRY_VOID(allow_shared_memory("attention", instance.kernel, bytes));
  MOTLEY_TRY_VOID(require_registers("attention", instance.kernel,
                                    {.threads = instance.threads, .needed = instance.registers}));
  if (!instance.waits) return {};
  return require_resident("attention", instance.kernel,
                          {.grid = static_cast<unsigned>(instance.blocks_per_sm),
                           .threads = static_cast<unsigned>(instance.threads),
                           .shared_bytes = bytes});
}

// log2 of the tokens of a page; unbounded if that is no power of two, since then a sequence has
// only one page.
int page_shift(const BlockTable& table) {
  constexpr int unbounded = 30;
  const auto tokens = static_cast<std::uint64_t>(table.page_tokens);
  return std::has_single_bit(tokens) ? std::countr_zero(tokens) : unbounded;
}

PageView view_of(const Pages& pages) {
  return {static_cast<const Bf16*>(pages.data), pages.page_stride, pages.token_stride,
          pages.head_stride};
}

struct BoxShape {
  std::int64_t heads, width;
  unsigned tokens;
};
// Boxes of 64 columns and `tokens` tokens of one head in a page: [page, head, token, column].
CUtensorMap boxes_of(const Device& device, const Pages& pages, const BlockTable& table,
                     const BoxShape& shape) {
  constexpr std::int64_t any_page = std::int64_t{1} << 31;
  return encode(
             device.encode_tensor_map(),
             TensorBoxes<4>{.data = pages.data,
                            .sizes = {shape.width, table.page_tokens, shape.heads, any_page},
                            .strides = {pages.token_stride, pages.head_stride, pages.page_stride},
                            .box = {64, shape.tokens, 1, 1}})
      .value();
}

TileParams params_of(const Attention& p) {
  constexpr double log2_e = 1.44269504088896340736;
  const auto group = static_cast<int>(p.heads / p.kv_heads);
  return {.key_pages = {},
          .value_pages = {},
          .last_tokens = {},
          .shared_pages = {},
          .own_key_panels = static_cast<int>((p.key_width - p.shared_width) / 64),
          .page_tokens = static_cast<int>(p.table.page_tokens),
          .keys = view_of(p.k),
          .values = view_of(p.v),
          .key_exponents = p.k.exponents,
          .value_exponents = p.v.exponents,
          .value_factor = kv_factor(p.v.fixed_scale),
          .seq_begin = p.sequences.seq_begin,
          .positions = p.sequences.positions,
          .table = p.table.pages,
          .table_stride = p.table.stride,
          .page_shift = page_shift(p.table),
          .sequences = 0,
          .least_rows = 1,
          .max_rows = std::numeric_limits<int>::max(),
          .kv_heads = static_cast<int>(p.kv_heads),
          .group = group,
          .group_inverse = static_cast<std::uint32_t>((std::uint64_t{1} << 32) / group + 1),
          .scale = static_cast<float>(static_cast<double>(p.scale) *
                                      static_cast<double>(kv_factor(p.k.fixed_scale)) * log2_e),
          .window = static_cast<int>(p.window),
          .sinks = p.sinks,
          .gates = p.gates,
          .q = p.q,
          .q_f32 = p.q_type == DType::f32,
          .q_stride = p.q_stride,
          .q_head_stride = p.q_head_stride,
          .out = p.out,
          .out_f32 = p.out_type == DType::f32,
          .out_stride = p.out_stride,
          .out_head_stride = p.out_head_stride,
          .whole = false,
          .slots = 0,
          .partials = p.scratch.partials,
          .partial_count = p.scratch.partial_count,
          .counters = p.scratch.counters,
          .counter_count = p.scratch.counter_count,
          .partial_rows = 0};
}

void launch_tiles(const Instance& instance, TileParams p, std::int64_t max_rows,
                  StreamHandle stream) {
  p.slots = device_of(stream).multiprocessors() * instance.blocks_per_sm;
  // Even, so that results are aligned to 16 bytes.
  p.partial_rows = static_cast<int>(std::min<std::int64_t>((max_rows + 1) / 2 * 2, instance.rows));
  launch("attention", instance.kernel,
         {.grid = static_cast<unsigned>(p.slots),
          .threads = static_cast<unsigned>(instance.threads),
          .shared_bytes = static_cast<std::size_t>(instance.shared_bytes)},
         stream, p);
}

// Adds the boxes of tensor maps with which kernels of many rows read.
void add_boxes(const Device& device, const Attention& a, TileParams& p) {
  const bool latent = a.key_width == latent_width;
  p.key_pages = boxes_of(device, a.k, a.table, {a.kv_heads, a.key_width - a.shared_width, 16});
  if (a.shared_width > 0)
    p.shared_pages = boxes_of(device, a.shared_k, a.table, {1, a.shared_width, 16});
  p.value_pages = boxes_of(device, a.v, a.table, {a.kv_heads, a.value_width, 16});
  p.last_tokens =
      boxes_of(device, a.v, a.table, {a.kv_heads, latent ? a.key_width : a.value_width, 1});
}

}  // namespace
}  // namespace tiles

void run_tiles(const AttentionKernel& kernel, const Attention& a, const PackedRows& rows,
               StreamHandle stream) {
  using namespace tiles;
  const Instance instance = kernel.instance();
  TileParams p = params_of(a);
  p.least_rows = rows.least;
  p.max_rows = rows.max;
  p.whole = a.batch_invariant && !tiles::keeps_units(a.value_width);
  if (kernel.supports == supports_many) add_boxes(device_of(stream), a, p);
  const std::int64_t tokens = a.sequences.max_rows > 0 ? a.sequences.max_rows : a.sequences.rows;
  for (std::int64_t first = 0; first < a.sequences.count; first += max_sequences) {
    p.sequences =
        static_cast<int>(std::min<std::int64_t>(a.sequences.count - first, max_sequences));
    p.seq_begin = a.sequences.seq_begin + first;
    p.table = a.table.pages + first * a.table.stride;
    launch_tiles(instance, p, tokens * p.group, stream);
  }
}

void run_plain(const AttentionKernel&, const Attention& a, const PackedRows&, StreamHandle stream) {
  attention_plain(a, stream);
}

AttentionScratchSize attention_scratch(const AttentionShape& shape, StreamHandle stream) {
  if (shape.heads == 0) return {};
  // If ranges of positions are cut, there are about as many items as resident blocks, plus the
  // remainder of each sequence. A tile has at most 128 rows.
  const std::int64_t blocks = 2 * device_of(stream).multiprocessors();
  const std::int64_t items = blocks + 2 * shape.sequences * shape.kv_heads;
  const std::int64_t rows =
      std::min<std::int64_t>(128, std::max<std::int64_t>(shape.heads / shape.kv_heads, 64));
  return {.partials = items * 4 * rows * (shape.value_width + 2), .counters = 2 * items};
}

Result<void> prepare_attention() {
  for (const AttentionThreshold& row : attention_thresholds)
    if (row.kernel->instance != nullptr) MOTLEY_TRY_VOID(tiles::prepare(row.kernel->instance()));
  return {};
}

}  // namespace motley::kernels::cuda
