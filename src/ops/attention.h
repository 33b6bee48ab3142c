#pragma once

#include <cstdint>
#include <span>

#include "ops/context.h"
#include "tensor/tensor.h"

namespace motley::ops {

// Which sequence and position each row of a step has, and which pages hold each sequence.
struct PagedRows {
  std::span<const std::int32_t> seq_begin;  // [S + 1]: sequence s has rows [begin[s], begin[s + 1])
  std::span<const std::int32_t> positions;  // [R]
  // [S, pages]: page number of a sequence's positions [i * page_tokens, (i + 1) * page_tokens).
  tensor::ConstTensor block_table;  // i32
};

// One layer's keys, or values: [pages, page_tokens, kv_heads, width], f32 or bf16, at any strides
// but the last.
using KvPages = tensor::Tensor;
using ConstKvPages = tensor::ConstTensor;

// Writes x [R, kv_heads, width] (f32 or bf16), rounded, to the rows' places.
void store_kv(const Context& context, const PagedRows& rows, const tensor::ConstTensor& x,
              const KvPages& pages);

struct AttentionOptions {
  float scale = 1.0F;            // of q . k
  std::int64_t window = 0;       // 0: all positions; else the last `window`, own included
  const float* sinks = nullptr;  // [heads], or null
};

// Causal attention: q is [R, heads, dk], out is [R, heads, dv]; both f32 or bf16. The rows' own
// keys and values are in their pages already. v may be a part of k (MLA's latent). Softmax and sums
// are float32, in the order of positions: a row's bits depend on its own sequence and position
// only.
void attention(const Context& context, const PagedRows& rows, const tensor::ConstTensor& q,
               const ConstKvPages& k, const ConstKvPages& v, const AttentionOptions& options,
               const tensor::Tensor& out);

}  // namespace motley::ops
