#pragma once

#include <cstdint>

#include "ops/context.h"
#include "tensor/tensor.h"

namespace motley::ops {

// out[r] = table[ids[r]]: table is [V, H] (f32, f16 or bf16, at any alignment), ids is [R], out is
// [R, H] in f32. An id outside the table gives zeros.
void embed(const Context& context, const tensor::ConstTensor& table, const std::int32_t* ids,
           const tensor::Tensor& out);

}  // namespace motley::ops
