#pragma once

#include <cstdint>
#include <span>

#include "ops/context.h"
#include "tensor/tensor.h"

namespace motley::ops {

struct CombineOptions {
  // The row of x for slot j of row t, at [t * K + j]; rows outside of x are skipped. Empty: t * K +
  // j.
  std::span<const std::int32_t> places;
  bool accumulate = false;  // out += instead of out =
};

// out[t] = sum over j of weights[t][j] * x[place(t, j)], j ascending, in float32: x is [pairs, W],
// weights is [T, K], out is [T, W], all f32.
void combine(const Context& context, const tensor::ConstTensor& x,
             const tensor::ConstTensor& weights, const CombineOptions& options,
             const tensor::Tensor& out);

}  // namespace motley::ops
