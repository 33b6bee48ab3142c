#pragma once

#include <algorithm>
#include <cstdint>

#include "base/dtype.h"
#include "base/system/stream_handle.h"
#include "kernels/adapter_tables.h"
#include "kernels/elementary.h"

// What adapters do beside experts, on a device whose kernels read who uses what from tables
// (adapter_tables.h). The CPU walks a step's batch instead: lora/.
//
// Base rows are not touched by a delta. Sums are float32, in an order that a site's shape and the
// row's own ranks fix.
namespace motley::kernels {

// Some rows of one label: order[first] ... order[first + rows - 1], and the label's terms.
struct RowGroup {
  std::int32_t first = 0;
  std::int32_t rows = 0;
  std::int32_t term_begin = 0;
  std::int32_t term_end = 0;
};
// How many rows a group has at most, for so many rows in all.
inline constexpr std::int64_t few_adapted_rows = 256;
constexpr int max_group_rows(std::int64_t rows) { return rows <= few_adapted_rows ? 16 : 32; }

// Where few rows have more labels, what each of them has is the most of the work.
inline constexpr int few_labels = 16;

// All rows that have a label, in groups, and behind them the base's, whose groups have no terms.
struct RowGroups {
  const std::int32_t* counts = nullptr;  // of the first, and of both
  const RowGroup* groups = nullptr;
  const std::int32_t* order = nullptr;
};

// All of it is written before the kernels of a step are queued, and by no kernel, unless
// labels_in_step says so: kernels read it before the grid ahead of them has ended.
struct AdapterRows {
  std::int64_t rows = 0;
  const std::int32_t* labels = nullptr;      // [rows]; below zero: the base
  bool labels_in_step = false;               // a kernel of the step writes the labels
  const std::int32_t* term_begin = nullptr;  // [labels + 1]
  const AdapterTerm* terms = nullptr;
  std::int32_t sites_a_layer = 0;
  RowGroups groups{};              // where they are known; else each kernel looks for itself
  DType factor_type = DType::f32;  // f32, bf16 or f8_e4m3; whole weights are bf16 beside FP8
};

// A linear map behind its base product.
struct AdaptedLinear {
  std::int32_t site = 0;  // its entry in AdapterTerm::sites
  std::int64_t out = 0;
  float* acc = nullptr;  // [rows, out]; used up
  std::int64_t acc_stride = 0;
  const float* bias = nullptr;  // [out], or null
  void* result = nullptr;       // may be acc
  DType result_type = DType::f32;
  std::int64_t result_stride = 0;
};

inline constexpr int max_adapted_linears = 4;
// A row's ranks, those of each term rounded up to 8, are worked off in chunks of this many.
inline constexpr int rank_chunk = 256;
// What AdaptLinears::rank_rows must hold, in numbers: of few rows up to eight parts.
constexpr std::int64_t rank_row_numbers(std::int64_t rows) {
  return std::max(rows, 8 * std::min(rows, few_adapted_rows)) * max_adapted_linears * rank_chunk;
}

// For each of the linear maps, which share x: result = (acc or x W_own^T, + scale * (B (A x) +
// lora_bias) for each term) x gain + (own or base's bias), rounded once.
struct AdaptLinears {
  AdapterRows adapters{};
  const void* x = nullptr;
  DType x_type = DType::f32;
  std::int64_t x_stride = 0;
  std::int64_t in = 0;
  int count = 0;
  AdaptedLinear linears[max_adapted_linears];
  float* rank_rows = nullptr;
  // Of any label, at most, each term's rounded up to 8; 0: no factors.
  std::int32_t max_ranks = 0;
  bool many_labels = false;  // whether to provide for more than few_labels of them
  bool replaced = false;     // whether an adapter may have a weight of its own here
};

// Linear maps behind their base products, and then the heads that they are. The heads of a map in
// `linears` begin where its results do.
struct AdaptHeads {
  AdaptLinears linears{};
  PrepareHeads heads{};
};

// One linear map behind its base product, and the sum of which its results, which stand where the
// product does, are the second part, with the norm of that.
struct AdaptAndNorm {
  AdaptLinears linear{};
  AddAndNorm rows{};
};

// out[r] += sum of scale * B A[ids[r]] over the row's terms, or becomes the row of a replaced
// table. A is [vocabulary, padded].
struct AdaptEmbedding {
  AdapterRows adapters{};
  std::int32_t site = 0;
  const std::int32_t* ids = nullptr;  // [rows], of the vocabulary
  std::int64_t vocabulary = 0;
  std::int64_t width = 0;
  float* out = nullptr;
  std::int64_t out_stride = 0;
};

// kv_b of MLA in absorbed form; head h has rows [h * rows_a_head, (h + 1) * rows_a_head) of B, keys
// first, values last.
struct AdaptLatent {
  AdapterRows adapters{};
  std::int32_t site = 0;
  std::int64_t heads = 0;
  std::int64_t rows_a_head = 0;
  std::int64_t width = 0;   // of a head: of its keys, or of its values
  std::int64_t latent = 0;  // kv_b's input
  // What a head has: keys' queries [rows, heads, width], or values [rows, heads, width] in f32.
  void* heads_data = nullptr;
  DType heads_type = DType::f32;
  std::int64_t heads_stride = 0;
  std::int64_t heads_head_stride = 0;
  // Latent side, f32: queries in latent space, or what attention gave.
  float* latent_data = nullptr;
  std::int64_t latent_stride = 0;
  std::int64_t latent_head_stride = 0;
  // Whether the side that a call adds to is written in bf16 too, of rows without adapters as well.
  bool rounds = false;
  void* rounded = nullptr;
  std::int64_t rounded_stride = 0;
  std::int64_t rounded_head_stride = 0;
};

struct AdapterTable {
  void (*linears)(const AdaptLinears&, StreamHandle) = nullptr;
  // linears() and prepare_heads(), with the bits of one after the other.
  void (*heads)(const AdaptHeads&, StreamHandle) = nullptr;
  // linears() and add_and_norm(), with the bits of one after the other; the map's own results are
  // not written. Only where it takes the rows and sizes.
  bool (*takes_norm)(const AdaptAndNorm&) = nullptr;
  void (*linear_and_norm)(const AdaptAndNorm&, StreamHandle) = nullptr;
  void (*embedding)(const AdaptEmbedding&, StreamHandle) = nullptr;
  // Queries x gain of their keys' rows.
  void (*scale_queries)(const AdaptLatent&, StreamHandle) = nullptr;
  // latent += scale * (queries B_keys) A.
  void (*latent_queries)(const AdaptLatent&, StreamHandle) = nullptr;
  // values = (values + scale * (B_values (A latent) + lora_bias)) x gain.
  void (*latent_values)(const AdaptLatent&, StreamHandle) = nullptr;
};

}  // namespace motley::kernels
