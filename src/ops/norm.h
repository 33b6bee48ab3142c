#pragma once

#include "kernels/elementary.h"
#include "ops/context.h"
#include "tensor/tensor.h"

namespace motley::ops {

struct RmsNormOptions {
  float eps = 1e-6F;
  // False: the normalised value is rounded to out's type before the product with the weight (every
  // family except gpt-oss).
  bool weight_in_f32 = false;
};

// Over the last dimension: x and out are [R, W] or [R, heads, W] (f32 or bf16), weight is [W] in
// f32. out may be x.
void rms_norm(const Context& context, const tensor::ConstTensor& x,
              const tensor::ConstTensor& weight, const RmsNormOptions& options,
              const tensor::Tensor& out);
// The kernel call of rms_norm().
kernels::RmsNorm rms_norm_call(const Context& context, const tensor::ConstTensor& x,
                               const tensor::ConstTensor& weight, const RmsNormOptions& options,
                               const tensor::Tensor& out);

// sum = a + b, or a + (b + b_bias), all [R, W] in f32. sum may be a or b.
struct Addition {
  const tensor::ConstTensor& a;
  const tensor::ConstTensor& b;
  const tensor::Tensor& sum;
  const float* b_bias = nullptr;  // [W]
};
// The kernel call of a sum and out = rms_norm(sum), with the bits of one after the other: checked
// but not made, for a caller that fuses several.
kernels::AddAndNorm add_and_norm_call(const Context& context, const Addition& add,
                                      const tensor::ConstTensor& weight,
                                      const RmsNormOptions& options, const tensor::Tensor& out);

}  // namespace motley::ops
