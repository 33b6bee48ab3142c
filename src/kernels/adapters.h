#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "base/dtype.h"
#include "base/function_ref.h"
#include "base/system/stream_handle.h"
#include "kernels/adapter_tables.h"
#include "kernels/elementary.h"

// Adapters outside of experts, on devices whose kernels read them from tables (adapter_tables.h).
// The CPU iterates over a step's batch instead: lora/.
//
// A delta leaves base rows unchanged. Sums are float32, in an order that depends only on the shape
// of a site and the row's own ranks.
namespace motley::kernels {

// Rows of one label: order[first] ... order[first + rows - 1], and the label's terms.
struct RowGroup {
  std::int32_t first = 0;
  std::int32_t rows = 0;
  std::int32_t term_begin = 0;
  std::int32_t term_end = 0;
};
// The most rows of a group, for a number of rows in all.
inline constexpr std::int64_t few_adapted_rows = 256;
constexpr int max_group_rows(std::int64_t rows) { return rows <= few_adapted_rows ? 16 : 32; }

// Where few rows have more labels than this, reading adapters dominates.
inline constexpr int few_labels = 16;

// All rows that have a label, in groups, followed by the base rows, whose groups have no terms.
struct RowGroups {
  const std::int32_t* counts = nullptr;  // [2] the number of groups with a label, and of all
  const RowGroup* groups = nullptr;
  const std::int32_t* order = nullptr;
};

// All of it is written before the kernels of a step are queued, and not by a kernel unless
// labels_in_step is set. So kernels may read it before the previous grid has ended.
struct AdapterRows {
  std::int64_t rows = 0;
  const std::int32_t* labels = nullptr;      // [rows]; below zero: the base
  bool labels_in_step = false;               // a kernel of the step writes the labels
  const std::int32_t* term_begin = nullptr;  // [labels + 1]
  const AdapterTerm* terms = nullptr;
  std::int32_t sites_a_layer = 0;
  RowGroups groups{};              // if they are known; else each kernel searches for them
  DType factor_type = DType::f32;  // f32, bf16 or f8_e4m3; whole weights are bf16 beside FP8
};

// A linear map whose base product has been computed.
struct AdaptedLinear {
  std::int32_t site = 0;  // its entry in AdapterTerm::sites
  std::int64_t out = 0;
  float* acc = nullptr;  // [rows, out]; its contents are lost
  std::int64_t acc_stride = 0;
  const float* bias = nullptr;  // [out], or null
  void* result = nullptr;       // may be acc
  DType result_type = DType::f32;
  std::int64_t result_stride = 0;
};

inline constexpr int max_adapted_linears = 4;
// A row's ranks, each term's rounded up to 8, are processed in chunks of this many.
inline constexpr int rank_chunk = 256;
// The size of AdaptLinears::rank_rows, in numbers: for few rows up to eight parts.
constexpr std::int64_t rank_row_numbers(std::int64_t rows) {
  return std::max(rows, 8 * std::min(rows, few_adapted_rows)) * max_adapted_linears * rank_chunk;
}

// Ranks whose products with A are the same, and which may compute rows in rank space for each
// other.
struct SharedRankRows {
  int rank = 0;
  int ranks = 1;                // 1: they may not
  std::int64_t from_rows = -1;  // below zero: what was measured
  // Queues what fills in the parts of the other ranks: all have as many bytes, in order of ranks.
  const FunctionRef<void(void* parts, std::int64_t bytes)>* gather = nullptr;
};

// For each of the linear maps, which share x: result = (acc or x W_own^T, + scale * (B (A x) +
// lora_bias) for each term) * gain + (own or base's bias), rounded once.
struct AdaptLinears {
  AdapterRows adapters{};
  const void* x = nullptr;
  DType x_type = DType::f32;
  std::int64_t x_stride = 0;
  std::int64_t in = 0;
  int count = 0;
  AdaptedLinear linears[max_adapted_linears];
  float* rank_rows = nullptr;
  int rank_pitch = rank_chunk;  // numbers of a map of a row in rank_rows
  // Rows outside [shrink_begin, shrink_end) may be left out of rank_rows.
  std::int64_t shrink_begin = 0;
  std::int64_t shrink_end = std::numeric_limits<std::int64_t>::max();
  SharedRankRows shared{};
  // The most ranks of any label, each term's rounded up to 8; 0: no factors.
  std::int32_t max_ranks = 0;
  bool many_labels = false;  // whether to provide for more than few_labels of them
  bool replaced = false;     // whether an adapter may have a whole weight here
};

// Linear maps behind their base products, and then the heads that they compute. The heads of a map
// in `linears` begin where its results do.
struct AdaptHeads {
  AdaptLinears linears{};
  PrepareHeads heads{};
};

// One linear map behind its base product, followed by a sum and its norm. The map's results, in
// place of the product, are the second addend.
struct AdaptAndNorm {
  AdaptLinears linear{};
  AddAndNorm rows{};
};

// out[r] += sum of scale * B A[ids[r]] over the row's terms; or out[r] is the row of a replaced
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

// kv_b of MLA in absorbed form. Head h has rows [h * rows_a_head, (h + 1) * rows_a_head) of B:
// first keys, then values.
struct AdaptLatent {
  AdapterRows adapters{};
  std::int32_t site = 0;
  std::int64_t heads = 0;
  std::int64_t rows_a_head = 0;
  std::int64_t width = 0;   // of a head: of its keys, or of its values
  std::int64_t latent = 0;  // kv_b's input
  // By head: queries of keys, or values, [rows, heads, width] in f32.
  void* heads_data = nullptr;
  DType heads_type = DType::f32;
  std::int64_t heads_stride = 0;
  std::int64_t heads_head_stride = 0;
  // In latent space, f32: queries, or the output of attention.
  float* latent_data = nullptr;
  std::int64_t latent_stride = 0;
  std::int64_t latent_head_stride = 0;
  // Whether the result is also written in bf16, for rows without adapters, too.
  bool rounds = false;
  void* rounded = nullptr;
  std::int64_t rounded_stride = 0;
  std::int64_t rounded_head_stride = 0;
};

struct AdapterTable {
  void (*linears)(const AdaptLinears&, StreamHandle) = nullptr;
  // linears() followed by prepare_heads(), with the same bits.
  void (*heads)(const AdaptHeads&, StreamHandle) = nullptr;
  // linears() followed by add_and_norm(), with the same bits; the map's own results are not
  // written. takes_norm() says whether rows and sizes are supported.
  bool (*takes_norm)(const AdaptAndNorm&) = nullptr;
  void (*linear_and_norm)(const AdaptAndNorm&, StreamHandle) = nullptr;
  void (*embedding)(const AdaptEmbedding&, StreamHandle) = nullptr;
  // Queries * gain of the rows of their keys.
  void (*scale_queries)(const AdaptLatent&, StreamHandle) = nullptr;
  // latent += scale * (queries B_keys) A.
  void (*latent_queries)(const AdaptLatent&, StreamHandle) = nullptr;
  // values = (values + scale * (B_values (A latent) + lora_bias)) * gain.
  void (*latent_values)(const AdaptLatent&, StreamHandle) = nullptr;
};

}  // namespace motley::kernels
