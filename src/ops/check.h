#pragma once

#include "base/check.h"
#include "ops/context.h"
#include "tensor/tensor.h"

// Checks of tensors that every call makes. Wrong shapes are programming errors: they abort.
namespace motley::ops {

inline bool is_activation(DType type) { return type == DType::f32 || type == DType::bf16; }

template <class Tensor>
void check_activation(const Tensor& tensor, int rank) {
  MOTLEY_CHECK(tensor.shape().rank() == rank, "a tensor of as many dimensions as the call wants");
  MOTLEY_CHECK(is_activation(tensor.dtype()), "f32 or bf16");
  MOTLEY_CHECK(tensor.dim(rank - 1) <= 1 || tensor.stride(rank - 1) == 1,
               "the last dimension's numbers side by side");
  MOTLEY_CHECK(tensor.is_aligned(tensor.dtype() == DType::f32 ? 4 : 2), "aligned activations");
}

template <class Tensor>
void check_float32(const Tensor& tensor, int rank) {
  check_activation(tensor, rank);
  MOTLEY_CHECK(tensor.dtype() == DType::f32, "f32");
}

inline void check_context(const Context& context) {
  MOTLEY_CHECK(context.kernels != nullptr, "a context with kernels");
}

}  // namespace motley::ops
