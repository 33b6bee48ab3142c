#pragma once

#include "kernels/elementary.h"
#include "ops/context.h"
#include "tensor/tensor.h"

// All tensors are [R, W], f32 or bf16, with any row stride.
namespace motley::ops {

// out = a + b in float32, rounded once. out may be a or b.
void add(const Context& context, const tensor::ConstTensor& a, const tensor::ConstTensor& b,
         const tensor::Tensor& out);

// y[r] += scale[r] * x[r], or sigmoid(scale[r]) * x[r]; y is f32, scale is [R] or [R, 1] in f32.
struct AddScaledOptions {
  bool sigmoid = false;
};
void add_scaled(const Context& context, const tensor::ConstTensor& x,
                const tensor::ConstTensor& scale, const AddScaledOptions& options,
                const tensor::Tensor& y);
// The kernel call of add_scaled().
kernels::AddScaled add_scaled_call(const Context& context, const tensor::ConstTensor& x,
                                   const tensor::ConstTensor& scale,
                                   const AddScaledOptions& options, const tensor::Tensor& y);

// out = clamp(factor * x + bias, -limit, limit), rounded once to out's type.
struct RoundOptions {
  float factor = 1;
  const float* bias = nullptr;  // [W]
  float limit = 0;              // 0: no clamp
};
void round_to(const Context& context, const tensor::ConstTensor& x, const RoundOptions& options,
              const tensor::Tensor& out);

// How products of a weight take their inputs.
struct TakenInputs {
  const std::int32_t* order = nullptr;  // in the device's memory; null: as they stand
  kernels::InputRounding rounding{};
  kernels::InputMaxima maxima{};
};
// out = x as they are taken, in x's type.
void arrange_inputs(const Context& context, const tensor::ConstTensor& x, const TakenInputs& taken,
                    const tensor::Tensor& out);
// The kernel call of arrange_inputs().
kernels::ArrangeInputs arrange_inputs_call(const Context& context, const tensor::ConstTensor& x,
                                           const TakenInputs& taken, const tensor::Tensor& out);

}  // namespace motley::ops
