#pragma once

#include "ops/context.h"
#include "tensor/tensor.h"

namespace motley::ops {

// out[r][i] = log_softmax(logits[r])[ids[r][i]]: logits is [R, V] in f32, ids (i32, inside the
// vocabulary) and out (f32) are [R, n]. NaN for a whole row whose logits have overflowed. ranks is
// [R, n] in i32, or empty: the place of each id in the row's order of top_k, from 1 on; 0 with NaN.
void log_probabilities(const Context& context, const tensor::ConstTensor& logits,
                       const tensor::ConstTensor& ids, const tensor::Tensor& out,
                       const tensor::Tensor& ranks = {});

// The k largest of each row of x [R, V] (f32), falling; equal ones by rising id. ids is [R, k] in
// i32; values is [R, k] in f32, or empty.
void top_k(const Context& context, const tensor::ConstTensor& x, const tensor::Tensor& ids,
           const tensor::Tensor& values = {});

}  // namespace motley::ops
