#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/elementary.h"

namespace motley::kernels::cuda {

void round_inputs(const RoundInputs& params, StreamHandle stream);

// The rows of a layer's pairs in the order of their places, each as its expert's weights take it.
struct RoundExpertInputs {
  std::int64_t pairs = 0;
  std::int64_t width = 0;
  const void* x = nullptr;  // [tokens, width], or [pairs, width] by place
  DType x_type = DType::f32;
  const std::int32_t* tokens = nullptr;        // of a place; null: x is by place
  const std::int32_t* expert_begin = nullptr;  // [experts + 1] places
  int experts = 0;
  // Of expert e, `stride` bytes behind that of the expert before; in device memory.
  const InputRounding* roundings = nullptr;
  std::size_t stride = sizeof(InputRounding);
  std::int64_t columns = 0;  // of all of them
  void* out = nullptr;       // [pairs, width] by place; rows without an expert are not written
  DType out_type = DType::f32;
};
void round_expert_inputs(const RoundExpertInputs& params, StreamHandle stream);

}  // namespace motley::kernels::cuda
