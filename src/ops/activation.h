#pragma once

#include "kernels/elementary.h"
#include "ops/context.h"
#include "tensor/tensor.h"

namespace motley::ops {

struct ActivationSpec {
  kernels::Activation kind = kernels::Activation::silu;
  float limit = 7.0F;    // clamped_swiglu only
  float alpha = 1.702F;  // clamped_swiglu only
};

// out = activation(gate, up), all [R, W]; gate and up share a type (f32 or bf16), out has its own.
// Computed in float32, rounded once. out may be gate or up if the types are equal.
void activate_and_multiply(const Context& context, const ActivationSpec& spec,
                           const tensor::ConstTensor& gate, const tensor::ConstTensor& up,
                           const tensor::Tensor& out);

// The kernel call, checked but not made, for a caller that fuses several.
kernels::ActivateAndMultiply activation_call(const Context& context, const ActivationSpec& spec,
                                             const tensor::ConstTensor& gate,
                                             const tensor::ConstTensor& up,
                                             const tensor::Tensor& out);

}  // namespace motley::ops
