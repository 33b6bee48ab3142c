#pragma once

#include <cstdint>
#include <span>

#include "kernels/elementary.h"
#include "ops/context.h"
#include "quant/weight.h"
#include "tensor/tensor.h"

namespace motley::ops {

// acc = x W^T: x is [R, in] (f32 or bf16), acc is [R, out] in f32. Deltas, biases and rounding come
// after. A row's bits depend on that row alone. `maxima` of x's rows where ranks cut them, for
// devices whose products round x.
void linear(const Context& context, const tensor::ConstTensor& x, const quant::Weight& weight,
            const tensor::Tensor& acc, const kernels::InputMaxima& maxima = {});

// One of several products of the same x, which a device may compute together.
struct Product {
  const quant::Weight* weight = nullptr;
  tensor::Tensor acc;
};
inline constexpr std::size_t max_products = 4;
// `ahead`: memory that a later call reads. `inputs`, or null: how x is made, as part of the call,
// which may leave codes in its place; `coded`: they are there already.
void linears(const Context& context, const tensor::ConstTensor& x,
             std::span<const Product> products, const kernels::Ahead& ahead = {},
             const kernels::ArrangeInputs* inputs = nullptr, bool coded = false);
// The form in which a norm can write x of these products beside its result, which `inputs` reads;
// a norm without a sum is call.norm alone.
kernels::InputForm norm_inputs(const Context& context, const kernels::AddAndNorm& call,
                               const tensor::ConstTensor& x, std::span<const Product> products,
                               const kernels::ArrangeInputs& inputs);
// The same for an activation.
kernels::InputForm activation_inputs(const Context& context,
                                     const kernels::ActivateAndMultiply& call,
                                     const tensor::ConstTensor& x,
                                     std::span<const Product> products,
                                     const kernels::ArrangeInputs& inputs);

// The kernel call, checked but not made, for a caller that fuses several.
kernels::Linear linear_call(const Context& context, const tensor::ConstTensor& x,
                            const Product& product);

// The rows of a weight that belong to a head: head h has rows [h * rows_per_head + first, ... + n),
// where n is the width of the call's tensors.
struct HeadRows {
  std::int64_t rows_per_head = 0;
  std::int64_t first = 0;
};

// Options of a product per head: an alternative weight, and a second result.
struct PerHeadOptions {
  const quant::Weight* narrow = nullptr;  // the same weight for bf16's products, or null
  // In bf16, with the shape of acc, whose contents are then undefined; empty: only acc is written.
  tensor::Tensor rounded = {};
};

// A product for each head with its own rows: x is [R, heads, in], acc is [R, heads, n] in f32, and
// acc[r][h][j] = x[r][h] . weight row (h * rows_per_head + first + j). For MLA: values from
// latents.
void linear_per_head(const Context& context, const tensor::ConstTensor& x,
                     const quant::Weight& weight, HeadRows part, const tensor::Tensor& acc,
                     const PerHeadOptions& options = {});

// The transpose: x is [R, heads, n], acc is [R, heads, in], and acc[r][h] = sum over j of
// x[r][h][j] * weight row (h * rows_per_head + first + j). For MLA: queries into latent space.
void linear_per_head_transposed(const Context& context, const tensor::ConstTensor& x,
                                const quant::Weight& weight, HeadRows part,
                                const tensor::Tensor& acc, const PerHeadOptions& options = {});

}  // namespace motley::ops
