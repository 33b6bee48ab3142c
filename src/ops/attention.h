#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "kernels/elementary.h"
#include "ops/context.h"
#include "ops/norm.h"
#include "tensor/tensor.h"

namespace motley::ops {

// The sequence and position of each row of a step, and the pages of each sequence. The arrays are
// in the memory of the device that runs.
struct PagedRows {
  std::int64_t sequences = 0;               // S
  const std::int32_t* seq_begin = nullptr;  // [S + 1]: sequence s has rows [begin[s], begin[s + 1])
  const std::int32_t* positions = nullptr;  // [R]
  // [S, pages]: page number of a sequence's positions [i * page_tokens, (i + 1) * page_tokens).
  tensor::ConstTensor block_table;  // i32
  // Bounds over all sequences, which launches on a GPU need. The CPU reads the arrays instead.
  std::int64_t max_rows = 0;
  std::int64_t least_rows = 0;
  std::int64_t max_positions = 0;
};

// One layer's keys, or values. Numbers are f32 or bf16, or codes (f8_e4m3), beside which the same
// pages have an exponent for each token and head: code * 2^(exponent - 127) * fixed_scale is the
// number.
struct KvPages {
  tensor::Tensor numbers;  // [pages, page_tokens, kv_heads, n], with any strides except the last
  // Of codes only.
  tensor::Tensor exponents;  // u8 [pages, kv_heads, page_tokens]
  // bf16 [pages, page_tokens, 1, t]: the last columns of one head, which are no codes. Or nothing.
  tensor::Tensor tail;
  // The checkpoint's; 0: a power of two for each token and head, chosen when it is stored.
  float fixed_scale = 0;

  KvPages() = default;
  KvPages(tensor::Tensor all) : numbers(all) {}  // without codes

  bool stored() const { return numbers.bytes() != nullptr; }
  bool coded() const { return numbers.dtype() == DType::f8_e4m3; }
  std::int64_t page_tokens() const { return numbers.dim(1); }
  std::int64_t heads() const { return numbers.dim(2); }
  std::int64_t tail_width() const { return tail.bytes() == nullptr ? 0 : tail.dim(3); }
  std::int64_t width() const { return numbers.dim(3) + tail_width(); }
};
// The first columns of keys that are values too (MLA's latent).
KvPages values_in_keys(const KvPages& keys, std::int64_t width);

// Gathers positions [0, end) of every sequence from pages of one head: sequence s has rows
// [begin[s], begin[s + 1]) of out [begin[S], width], of the pages' type, bf16 if they have codes.
// `labels` are those of the step's rows and `out_labels` receives those of the gathered rows; both
// null: not needed.
struct GatheredRows {
  const std::int32_t* begin = nullptr;  // [S + 1]
  tensor::Tensor out;
  const std::int32_t* labels = nullptr;
  std::int32_t* out_labels = nullptr;
};
void gather_kv(const Context& context, const PagedRows& rows, const KvPages& pages,
               const GatheredRows& gathered);

// Prepares the heads of a projection for attention: each head optionally gets a bias, is normed,
// rotated, stored and written. The contents of x are lost.
struct HeadNorm {
  const float* weight = nullptr;  // [width], or null: no norm
  RmsNormOptions options{};
};
struct PreparedHeads {
  tensor::Tensor x;             // [R, heads, width]
  const float* bias = nullptr;  // [heads, width], of heads side by side; null: none
  HeadNorm norm{};
  bool rotated = false;
  KvPages pages{};     // nothing: not stored
  tensor::Tensor out;  // [R, heads, width], rounded if its type is narrower; may be x
};
struct PreparedRope {
  tensor::ConstTensor cos_sin;  // [R, dims]
  bool interleaved = false;
};
inline constexpr std::size_t max_prepared_heads = 3;
// The prepared heads of a layer's projections, checked, as kernels take them. The bits are those of
// one operation after the other. Rows of other sequences are not stored.
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

// Prepares rows of latent attention, with the bits of a norm, a rotation, a store and a rounding
// one after the other. Of kv [R, latent + dims] (f32) the latent is normed, the last dims columns
// are rotated, and both are stored. The last dims columns of each head of q [R, heads, width] (f32)
// are rotated, and its columns from width - out.dim(2) on go to out [R, heads, at least dims],
// rounded if its type is narrower. Processes `count` rows from first_row on: those of `rows` and
// padding behind them. The contents of kv and of the rotated columns of q are lost.
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
  tensor::ConstTensor gates{};   // f32, as out: their sigmoids multiply out; or nothing
  kernels::AttentionScratch scratch{};
};

// The type to which attention() first rounds queries of float32, for KV memory laid out as in a
// step. Queries may be produced in that type without loss. Codes of latents have a tail.
struct PagedWidths {
  std::int64_t page_tokens = 0;
  std::int64_t kv_heads = 0;
  std::int64_t keys = 0;
  std::int64_t values = 0;
  bool values_in_keys = false;
};
DType query_type(const Context& context, DType pages, const PagedWidths& widths);

// Causal attention: q is [R, heads, dk], out is [R, heads, dv]; both f32 or bf16. The rows' own
// keys and values are in their pages already. values may be a part of keys (MLA's latent). Softmax
// and sums are float32, in the order of positions: a row's bits depend on its own sequence and
// position only.
struct PagedKeys {
  const KvPages& keys;
  const KvPages& values;
};
void attention(const Context& context, const PagedRows& rows, const tensor::ConstTensor& q,
               const PagedKeys& pages, const AttentionOptions& options, const tensor::Tensor& out);

// Keys and values of sequences in contiguous rows, as gather_kv writes them. They have 16 more rows
// behind the last: a device may read them, but their contents do not matter.
struct ExpandedKeys {
  const std::int32_t* begin = nullptr;  // [S + 1]: sequence s has rows [begin[s], begin[s + 1])
  std::int64_t max_positions = 0;       // of a sequence
  tensor::ConstTensor keys;             // [rows, kv_heads, width]
  tensor::ConstTensor shared;  // [rows, width]: the last columns of keys, shared by all heads
  tensor::ConstTensor values;  // [rows, kv_heads, width]
};
inline constexpr std::int64_t rows_after_positions = 16;
// Attention to these instead of the rows' pages. `rows` needs no block table.
void attention(const Context& context, const PagedRows& rows, const tensor::ConstTensor& q,
               const ExpandedKeys& expanded, const AttentionOptions& options,
               const tensor::Tensor& out);
// query_type() for keys and values in bf16 of these widths; `keys` includes the shared columns.
struct ExpandedWidths {
  std::int64_t keys = 0;
  std::int64_t shared = 0;
  std::int64_t values = 0;
};
DType query_type(const Context& context, const ExpandedWidths& widths);

}  // namespace motley::ops
