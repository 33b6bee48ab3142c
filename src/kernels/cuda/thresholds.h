// The built-in thresholds that select kernels; tuned_thresholds.h puts a user's own in front. A row
// applies if all of its bounds hold; the first row that applies and whose kernel supports the
// problem is chosen. `record` is the file in bench/results/ that compares the choice with its
// alternatives.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <string_view>

#include "kernels/cuda/adapters/delta_kernels.h"
#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/experts/tiles.h"
#include "kernels/cuda/linear/dense_select.h"
#include "kernels/tuning/tuning.h"

namespace motley::kernels::cuda {

// A range of a number, in units that depend on the table.
struct Range {
  static constexpr std::int64_t none = std::numeric_limits<std::int64_t>::max();
  std::int64_t above = -1;  // exclusive
  std::int64_t from = 0;    // inclusive
  std::int64_t up_to = none;

  constexpr bool holds(std::int64_t value, std::int64_t unit = 1) const {
    return value > above * unit && value >= from * unit && (up_to == none || value <= up_to * unit);
  }
};

// Experts

struct ExpertThreshold {
  // By the bits of a code.
  enum class Weights : std::uint8_t { any = 0, codes_4 = 4, codes_8 = 8, bf16 = 16 };
  enum class Adapters : std::uint8_t { any, none, some };

  Weights weights = Weights::any;
  Adapters adapters = Adapters::any;
  Range pairs{};
  Range pairs_per_expert{};
  // Tiles of 128 rows of gate and up, per multiprocessor.
  std::int64_t items_from = 0;
  std::int64_t items_below = Range::none;
  GroupedTiles tiles{};  // sort_inside: where a block has room for the pairs
  std::string_view record{};
  const ExpertLayerShape* layer = nullptr;  // of a tuned row: these layers only
};

// Weights of codes.
inline constexpr std::string_view codes_record = "2026-11-26-gpu-formats.md";
// And of codes of inputs.
inline constexpr std::string_view coded_record = "2026-11-28-codes-as-rows.md";

namespace grouped {

inline constexpr auto expert_thresholds = [] {
  using T = ExpertThreshold;
  using enum GroupedTiles::Rows;
  using enum GroupedTiles::Gather;
  constexpr auto codes_4 = T::Weights::codes_4;
  constexpr auto codes_8 = T::Weights::codes_8;
  constexpr auto bf16 = T::Weights::bf16;
  constexpr auto none = T::Adapters::none;
  constexpr auto some = T::Adapters::some;
  constexpr auto record = std::string_view("2026-11-21-expert-layer.md");
  constexpr Range few{.up_to = 64};
  constexpr Range summed{.up_to = summed_pairs};
  return std::to_array<T>({
      // Too few tiles of 128 rows to occupy all multiprocessors.
      {.weights = bf16,
       .adapters = some,
       .pairs = few,
       .items_below = 1,
       .tiles = {.sort_inside = true, .sum_inside = true},
       .record = record},
      {.pairs = few,
       .items_below = 1,
       .tiles = {.rows = r64, .sort_inside = true, .sum_inside = true},
       .record = record},
      {.weights = codes_4,
       .adapters = none,
       .pairs = few,
       .items_below = 2,
       .tiles = {.rows = r64, .sort_inside = true},
       .record = record},
      // 4 bits with more tiles than needed: fewer, taller ones.
      {.weights = codes_4,
       .adapters = none,
       .pairs_per_expert = {.above = 6, .up_to = 12},
       .items_from = 8,
       .tiles = {.rows = r256, .width = 16, .gather = copies, .sort_inside = true},
       .record = record},
      {.weights = codes_4,
       .pairs_per_expert = {.up_to = 12},
       .items_from = 8,
       .tiles = {.rows = r256, .width = 16, .sort_inside = true},
       .record = record},
      // Decoding keeps the warps busy that would sum; a separate launch costs less.
      {.weights = codes_8,
       .pairs = summed,
       .pairs_per_expert = {.up_to = 1},
       .tiles = {.sort_inside = true},
       .record = codes_record},
      {.weights = codes_8,
       .pairs_per_expert = {.up_to = 8},
       .tiles = {.width = 16, .gather = copies, .sort_inside = true},
       .record = codes_record},
      // Token rows that are codes, then those that are not.
      {.weights = codes_8,
       .pairs_per_expert = {.above = 128},
       .tiles = {.rows = r256, .width = 128, .gather = permuted},
       .record = coded_record},
      {.weights = codes_8, .tiles = {.width = 128, .gather = permuted}, .record = coded_record},
      {.weights = codes_8,
       .tiles = {.rows = r256, .width = 64, .gather = copies},
       .record = codes_record},
      {.weights = codes_4,
       .pairs = summed,
       .pairs_per_expert = {.up_to = 1},
       .tiles = {.sort_inside = true},
       .record = record},
      {.weights = codes_4,
       .pairs = summed,
       .pairs_per_expert = {.up_to = 2},
       .tiles = {.width = 16, .sort_inside = true},
       .record = record},
      {.weights = bf16,
       .pairs = summed,
       .pairs_per_expert = {.up_to = 1},
       .tiles = {.sort_inside = true, .sum_inside = true},
       .record = record},
      {.weights = bf16,
       .adapters = none,
       .pairs = summed,
       .pairs_per_expert = {.up_to = 2},
       .tiles = {.width = 16, .sort_inside = true, .sum_inside = true},
       .record = record},
      {.weights = bf16,
       .adapters = some,
       .pairs = summed,
       .pairs_per_expert = {.up_to = 4},
       .tiles = {.width = 16, .sort_inside = true, .sum_inside = true},
       .record = record},
      // The shrinks of tall tiles would be two more launches.
      {.weights = bf16,
       .adapters = some,
       .pairs_per_expert = {.up_to = 4},
       .tiles = {.width = 16, .gather = copies},
       .record = record},
      {.adapters = some,
       .pairs_per_expert = {.up_to = 8},
       .tiles = {.width = 16},
       .record = record},
      {.weights = codes_4,
       .pairs_per_expert = {.up_to = 8},
       .tiles = {.width = 16, .gather = copies},
       .record = record},
      // From here on few tiles read each expert's weights: tall ones, as wide as its tokens.
      {.pairs_per_expert = {.up_to = 40},
       .tiles = {.rows = r256, .width = 64, .gather = copies},
       .record = record},
      {.weights = bf16,
       .adapters = none,
       .pairs_per_expert = {.above = 96, .up_to = 144},
       .tiles = {.rows = r256, .width = 160, .gather = copies},
       .record = record},
      {.weights = codes_4,
       .pairs_per_expert = {.from = 128},
       .tiles = {.rows = r256, .width = 128, .gather = permuted},
       .record = record},
      {.weights = bf16,
       .pairs_per_expert = {.from = 145},
       .tiles = {.rows = r256, .width = 128, .gather = permuted},
       .record = record},
      {.tiles = {.rows = r256, .width = 128, .gather = copies}, .record = record},
      {.tiles = {.rows = r256, .width = 64, .gather = copies}, .record = codes_record},
  });
}();

static_assert(std::ranges::all_of(expert_thresholds, [](const ExpertThreshold& row) {
  return can_run(row.tiles) && !row.record.empty();
}));

// Rows in rank space that ranks compute for each other: a product with A reads its rows of inputs
// once for every 32 columns, and a gathering has a latency of its own and 2 bytes of each column.
struct SharedShrinkThreshold {
  std::int64_t max_columns = Range::none;
  std::int64_t min_pairs = 0;
  std::string_view record{};
};
inline constexpr SharedShrinkThreshold shared_shrink_thresholds[] = {
    {.max_columns = 32, .min_pairs = 32768, .record = "2026-11-28-two-gpus.md"},
    {.min_pairs = 8192, .record = "2026-11-28-two-gpus.md"},
};

}  // namespace grouped

// Dense products

// Up to 16 rows the bulk-copied GEMV reads weights faster than the library, because it starts
// early; for large weights only up to 8 rows, and for larger ones never. Where weights are so small
// that launches cost as much as memory traffic, the streamed GEMV wins next, up to more rows if
// several products share a launch. Beyond that the library's tiles are full.
inline constexpr std::int64_t mi_numbers = std::int64_t{1} << 20;
inline constexpr std::string_view dense_record = "2026-11-21-dense-linear.md";
inline constexpr std::string_view tuned_record = "2026-11-26-gpu-quantised-activations.md";
inline constexpr std::array dense_thresholds = {
    DenseThreshold{
        .kernel = &per_head_kernel, .record = "2026-11-21-attention.md", .max_rows = 256},
    DenseThreshold{.kernel = &gemv_bulk_kernel,
                   .record = dense_record,
                   .max_rows = 8,
                   .max_numbers = 32 * mi_numbers,
                   .max_products = gemv_bulk_max_products},
    DenseThreshold{.kernel = &gemv_bulk_kernel,
                   .record = dense_record,
                   .max_rows = 16,
                   .max_numbers = 12 * mi_numbers,
                   .max_products = gemv_bulk_max_products},
    DenseThreshold{.kernel = &gemv_streamed_kernel,
                   .record = dense_record,
                   .max_rows = 32,
                   .max_numbers_together = 12 * mi_numbers,
                   .min_products = 2,
                   .max_products = gemv_streamed_max_products},
    DenseThreshold{.kernel = &gemv_bulk_codes_kernel,
                   .record = codes_record,
                   .max_rows = 8,
                   .max_numbers = 32 * mi_numbers,
                   .max_products = gemv_bulk_max_products},
    DenseThreshold{.kernel = &gemv_bulk_codes_kernel,
                   .record = tuned_record,
                   .max_rows = 16,
                   .max_numbers = 12 * mi_numbers,
                   .max_products = gemv_bulk_max_products},
    DenseThreshold{.kernel = &gemv_streamed_codes_kernel,
                   .record = tuned_record,
                   .code_bits = 8,
                   .max_rows = 16,
                   .max_products = gemv_streamed_max_products},
    DenseThreshold{
        .kernel = &coded_kernel, .record = coded_record, .max_products = coded_max_products},
    DenseThreshold{.kernel = &gemv_streamed_codes_kernel,
                   .record = tuned_record,
                   .code_bits = 8,
                   .max_rows = 32,
                   .max_products = gemv_streamed_max_products},
    DenseThreshold{.kernel = &gemv_streamed_codes_kernel,
                   .record = tuned_record,
                   .code_bits = 4,
                   .max_rows = 64,
                   .max_products = gemv_streamed_max_products},
    DenseThreshold{
        .kernel = &decoded_kernel, .record = codes_record, .max_products = decoded_max_products},
    DenseThreshold{.kernel = &gemv_streamed_codes_kernel,
                   .record = codes_record,
                   .max_products = gemv_streamed_max_products},
    DenseThreshold{.kernel = &decoded_batch_invariant_kernel, .record = codes_record},
    DenseThreshold{.kernel = &gemv_streamed_kernel,
                   .record = dense_record,
                   .max_rows = 8,
                   .max_numbers = 8 * mi_numbers},
    DenseThreshold{.kernel = &cublaslt_kernel, .record = dense_record},
    DenseThreshold{.kernel = &cublaslt_batch_invariant_kernel, .record = dense_record},
    DenseThreshold{.kernel = &gemv_streamed_kernel, .record = dense_record},
    DenseThreshold{.kernel = &exact_kernel, .record = dense_record},
};

// Deltas

struct DeltaThreshold {
  Delta delta;
  std::string_view record;
  std::int64_t min_rows = 0;
  std::int64_t max_rows = std::numeric_limits<std::int64_t>::max();
  bool many_labels = false;  // applies only if more than few_labels are provided for
};

inline constexpr std::string_view delta_record = "2026-11-21-dense-deltas.md";
inline constexpr DeltaThreshold delta_thresholds[] = {
    {.delta = Delta(shrink_panels_kernel, expand_heads_kernel),
     .record = delta_record,
     .min_rows = few_adapted_rows + 1},
    {.delta = Delta(shrink_panels_kernel, expand_norm_kernel),
     .record = delta_record,
     .min_rows = few_adapted_rows + 1},
    {.delta = Delta(shrink_slices_kernel, expand_slices_kernel),
     .record = delta_record,
     .max_rows = few_adapted_rows,
     .many_labels = true},
    {.delta = Delta(delta_in_cluster_kernel), .record = delta_record, .max_rows = few_adapted_rows},
    {.delta = Delta(shrink_panels_kernel, expand_panels_kernel),
     .record = delta_record,
     .min_rows = few_adapted_rows + 1},
    {.delta = Delta(shrink_plain_1_kernel, expand_plain_1_kernel),
     .record = delta_record,
     .max_rows = 128},
    {.delta = Delta(shrink_plain_8_kernel, expand_plain_8_kernel), .record = delta_record},
};

// Rows in rank space that ranks compute for each other: see grouped::shared_shrink_thresholds. Here
// a number has 4 bytes, and x is read once for all columns of all maps.
struct SharedDeltaThreshold {
  std::int64_t max_columns = Range::none;  // of a row, all maps together
  std::int64_t min_rows = 0;
  std::string_view record{};
};
inline constexpr SharedDeltaThreshold shared_delta_thresholds[] = {
    {.max_columns = 32, .min_rows = Range::none, .record = "2026-11-28-two-gpus.md"},
    {.max_columns = 96, .min_rows = 8192, .record = "2026-11-28-two-gpus.md"},
    {.min_rows = 4096, .record = "2026-11-28-two-gpus.md"},
};

// Attention: sequences of few packed rows (tokens x query heads per kv head) are launched apart
// from the others of a step, with the smallest kernel that supports them.

inline constexpr std::int64_t any_packed_rows = std::numeric_limits<std::int64_t>::max();

struct AttentionThreshold {
  const AttentionKernel* kernel;
  std::string_view record;
  std::int64_t max_packed = any_packed_rows;
  bool batch_invariant = false;  // applies only to batch-invariant attention
};

inline constexpr std::string_view attention_record = "2026-11-21-attention.md";
inline constexpr std::string_view wide_heads_record = "2026-11-29-wide-heads.md";
inline constexpr AttentionThreshold attention_thresholds[] = {
    {.kernel = &few_attention<64, 64, 8>, .record = attention_record, .max_packed = 8},
    {.kernel = &few_attention<64, 64, 16>, .record = attention_record, .max_packed = 16},
    {.kernel = &few_attention<64, 64, 32>, .record = attention_record, .max_packed = 32},
    {.kernel = &many_attention<64, 64, true>, .record = attention_record, .batch_invariant = true},
    {.kernel = &many_attention<64, 64, false>, .record = attention_record},
    {.kernel = &few_attention<128, 128, 8>, .record = attention_record, .max_packed = 8},
    {.kernel = &few_attention<128, 128, 16>, .record = attention_record, .max_packed = 16},
    {.kernel = &few_attention<128, 128, 32>, .record = attention_record, .max_packed = 32},
    {.kernel = &many_attention<128, 128, true>,
     .record = attention_record,
     .batch_invariant = true},
    {.kernel = &many_attention<128, 128, false>, .record = attention_record},
    {.kernel = &few_attention<192, 128, 8>, .record = attention_record, .max_packed = 8},
    {.kernel = &few_attention<192, 128, 16>, .record = attention_record, .max_packed = 16},
    {.kernel = &few_attention<192, 128, 32>, .record = attention_record, .max_packed = 32},
    {.kernel = &many_attention<192, 128, true>,
     .record = attention_record,
     .batch_invariant = true},
    {.kernel = &many_attention<192, 128, false>, .record = attention_record},
    {.kernel = &few_attention<256, 256, 8>, .record = wide_heads_record, .max_packed = 8},
    {.kernel = &few_attention<256, 256, 16>, .record = wide_heads_record, .max_packed = 16},
    {.kernel = &few_attention<256, 256, 32>, .record = wide_heads_record, .max_packed = 32},
    {.kernel = &many_attention<256, 256, true>,
     .record = wide_heads_record,
     .batch_invariant = true},
    {.kernel = &many_attention<256, 256, false>, .record = wide_heads_record},
    {.kernel = &few_attention<512, 512, 16>, .record = wide_heads_record, .max_packed = 16},
    {.kernel = &many_attention<512, 512, false>, .record = wide_heads_record},
    {.kernel = &few_attention<576, 512, 16>, .record = attention_record, .max_packed = 16},
    {.kernel = &many_attention<576, 512, false>, .record = attention_record},
    {.kernel = &few_codes_attention<64, 64, 8>, .record = attention_record, .max_packed = 8},
    {.kernel = &few_codes_attention<64, 64, 16>, .record = attention_record, .max_packed = 16},
    {.kernel = &many_codes_attention<64, 64>, .record = attention_record},
    {.kernel = &few_codes_attention<128, 128, 8>, .record = attention_record, .max_packed = 8},
    {.kernel = &few_codes_attention<128, 128, 16>, .record = attention_record, .max_packed = 16},
    {.kernel = &many_codes_attention<128, 128>, .record = attention_record},
    {.kernel = &few_codes_attention<256, 256, 8>, .record = wide_heads_record, .max_packed = 8},
    {.kernel = &few_codes_attention<256, 256, 16>, .record = wide_heads_record, .max_packed = 16},
    {.kernel = &many_codes_attention<256, 256>, .record = wide_heads_record},
    {.kernel = &few_codes_attention<512, 512, 16>, .record = wide_heads_record, .max_packed = 16},
    {.kernel = &many_codes_attention<512, 512>, .record = wide_heads_record},
    {.kernel = &plain_attention, .record = attention_record},
};

}  // namespace motley::kernels::cuda
