#pragma once

#include <cstdint>
#include <span>

#include "kernels/elementary.h"
#include "ops/context.h"
#include "quant/weight.h"
#include "tensor/tensor.h"

namespace motley::ops {

// acc = x W^T: x is [R, in] (f32 or bf16), acc is [R, out] in f32. Deltas, biases and rounding come
// after. A row's bits depend on that row alone.
void linear(const Context& context, const tensor::ConstTensor& x, const quant::Weight& weight,
            const tensor::Tensor& acc);

// Some of these at once, of one x. A device may do them together.
struct Product {
  const quant::Weight* weight = nullptr;
  tensor::Tensor acc;
};
inline constexpr std::size_t max_products = 4;
// `ahead`: what a later call reads.
void linears(const Context& context, const tensor::ConstTensor& x,
             std::span<const Product> products, const kernels::Ahead& ahead = {});

// Such a call, checked and not made: for one that does more at once.
kernels::Linear linear_call(const Context& context, const tensor::ConstTensor& x,
                            const Product& product);

// Which rows of a weight belong to a head: head h has rows [h * rows_per_head + first, ... + n),
// where n is the width that the call's tensors have.
struct HeadRows {
  std::int64_t rows_per_head = 0;
  std::int64_t first = 0;
};

// What a product per head may use beside its weight, and a second place for its results.
struct PerHeadOptions {
  const quant::Weight* narrow = nullptr;  // the same weight for bf16's products, or null
  // In bf16, as large as acc, of which nobody may know the numbers afterwards; nothing: only acc.
  tensor::Tensor rounded = {};
};

// Each head through rows of its own: x is [R, heads, in], acc is [R, heads, n] in f32, and
// acc[r][h][j] = x[r][h] . weight row (h * rows_per_head + first + j). MLA's values from latents.
void linear_per_head(const Context& context, const tensor::ConstTensor& x,
                     const quant::Weight& weight, HeadRows part, const tensor::Tensor& acc,
                     const PerHeadOptions& options = {});

// The transpose: x is [R, heads, n], acc is [R, heads, in], and acc[r][h] = sum over j of
// x[r][h][j] * weight row (h * rows_per_head + first + j). MLA's queries into latent space.
void linear_per_head_transposed(const Context& context, const tensor::ConstTensor& x,
                                const quant::Weight& weight, HeadRows part,
                                const tensor::Tensor& acc, const PerHeadOptions& options = {});

}  // namespace motley::ops
