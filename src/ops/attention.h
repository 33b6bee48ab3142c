#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "kernels/elementary.h"
#include "ops/context.h"
#include "ops/norm.h"
#include "tensor/tensor.h"

namespace motley::ops {

// Which sequence and position each row of a step has, and which pages hold each sequence. The
// arrays are in the memory of the device that runs.
struct PagedRows {
  std::int64_t sequences = 0;               // S
  const std::int32_t* seq_begin = nullptr;  // [S + 1]: sequence s has rows [begin[s], begin[s + 1])
  const std::int32_t* positions = nullptr;  // [R]
  // [S, pages]: page number of a sequence's positions [i * page_tokens, (i + 1) * page_tokens).
  tensor::ConstTensor block_table;  // i32
  // Of a sequence, at most and at least: what a device's host must know to launch. The CPU looks
  // for itself.
  std::int64_t max_rows = 0;
  std::int64_t least_rows = 0;
  std::int64_t max_positions = 0;
};

// One layer's keys, or values: [pages, page_tokens, kv_heads, width], f32 or bf16, at any strides
// but the last.
using KvPages = tensor::Tensor;
using ConstKvPages = tensor::ConstTensor;

// Positions [0, end) of every sequence out of pages of one head, side by side: sequence s has rows
// [begin[s], begin[s + 1]) of out [begin[S], width], of the pages' type. Labels are the step's
// rows' own, and go to the sequences' rows; both null: to no row.
struct GatheredRows {
  const std::int32_t* begin = nullptr;  // [S + 1]
  tensor::Tensor out;
  const std::int32_t* labels = nullptr;
  std::int32_t* out_labels = nullptr;
};
void gather_kv(const Context& context, const PagedRows& rows, const ConstKvPages& pages,
               const GatheredRows& gathered);

// Heads of a projection on their way to attention: normed over each head, turned, stored and
// written, as far as each is wanted. What x held is lost.
struct HeadNorm {
  const float* weight = nullptr;  // [width], or null: no norm
  RmsNormOptions options{};
};
struct PreparedHeads {
  tensor::Tensor x;  // [R, heads, width]
  HeadNorm norm{};
  bool turned = false;
  KvPages pages{};     // nothing: not stored
  tensor::Tensor out;  // [R, heads, width], rounded once more if its type is narrower; may be x
};
struct PreparedRope {
  tensor::ConstTensor cos_sin;  // [R, dims]
  bool interleaved = false;
};
inline constexpr std::size_t max_prepared_heads = 3;
// Projections of a layer, with the bits of each stage by itself; as kernels take it. Rows of other
// sequences than these are not stored.
class HeadsCall {
 public:
  HeadsCall(const Context& context, const PagedRows& rows, const PreparedRope& rope,
            std::span<const PreparedHeads> all);
  kernels::PrepareHeads params() const {
    kernels::PrepareHeads params = params_;
    params.all = heads_.data();
    return params;
  }

 private:
  std::array<kernels::Heads, max_prepared_heads> heads_;
  kernels::PrepareHeads params_;
};
void prepare_heads(const Context& context, const HeadsCall& call);

// Latent attention's rows on their way to pages and to attention, with the bits of a norm, a
// rotation, a store and a rounding one after the other: of kv [R, latent + dims] (f32) the latent
// is normed, the last dims columns are turned, and both are stored; so are those columns of each
// head of q [R, heads, width] (f32) turned, of which the columns from width - out.dim(2) on go to
// out [R, heads, at least dims], rounded where its type is narrower. Only `count` rows from
// first_row on: those of `rows` and what stands behind them. What kv held is lost, and what q's
// turned columns held.
struct LatentRows {
  std::int64_t first_row = 0;
  std::int64_t count = 0;
  tensor::Tensor kv;
  HeadNorm norm{};
  tensor::Tensor q;
  tensor::Tensor out;
};
void prepare_latent(const Context& context, const PagedRows& rows, const PreparedRope& rope,
                    const LatentRows& latent, const KvPages& pages);

struct AttentionOptions {
  float scale = 1.0F;            // of q . k
  std::int64_t window = 0;       // 0: all positions; else the last `window`, own included
  const float* sinks = nullptr;  // [heads], or null
  kernels::AttentionScratch scratch{};
};

// The type to which attention() would round queries of float32 before anything else, of pages that
// lie as a step's do: where they are made, they lose nothing by it.
struct PagedWidths {
  std::int64_t page_tokens = 0;
  std::int64_t kv_heads = 0;
  std::int64_t keys = 0;
  std::int64_t values = 0;
  bool values_in_keys = false;
};
DType query_type(const Context& context, DType pages, const PagedWidths& widths);

// Causal attention: q is [R, heads, dk], out is [R, heads, dv]; both f32 or bf16. The rows' own
// keys and values are in their pages already. v may be a part of k (MLA's latent). Softmax and sums
// are float32, in the order of positions: a row's bits depend on its own sequence and position
// only.
void attention(const Context& context, const PagedRows& rows, const tensor::ConstTensor& q,
               const ConstKvPages& k, const ConstKvPages& v, const AttentionOptions& options,
               const tensor::Tensor& out);

// Keys and values of sequences side by side, as gather_kv lays positions. Sixteen rows behind the
// last belong to them too: a device may read them, and what they hold is nobody's business.
struct ExpandedKeys {
  const std::int32_t* begin = nullptr;  // [S + 1]: sequence s has rows [begin[s], begin[s + 1])
  std::int64_t max_positions = 0;       // of a sequence
  tensor::ConstTensor keys;             // [rows, kv_heads, width]
  tensor::ConstTensor shared;  // [rows, width]: the keys' last columns, for every head the same
  tensor::ConstTensor values;  // [rows, kv_heads, width]
};
inline constexpr std::int64_t rows_behind_expanded = 16;
// The same to these, whatever the rows' own pages hold. `rows` needs no table.
void attention(const Context& context, const PagedRows& rows, const tensor::ConstTensor& q,
               const ExpandedKeys& expanded, const AttentionOptions& options,
               const tensor::Tensor& out);
// query_type() of keys and values in bf16 of these widths; `keys` counts the shared ones.
struct ExpandedWidths {
  std::int64_t keys = 0;
  std::int64_t shared = 0;
  std::int64_t values = 0;
};
DType query_type(const Context& context, const ExpandedWidths& widths);

}  // namespace motley::ops
