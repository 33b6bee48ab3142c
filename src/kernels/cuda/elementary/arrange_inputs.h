#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/elementary.h"

namespace motley::kernels::cuda {

void arrange_inputs(const ArrangeInputs& params, StreamHandle stream);
void input_maxima(const FindInputMaxima& params, StreamHandle stream);

// How an expert's weights take their inputs.
struct ExpertInputs {
  InputRounding rounding{};
  const std::int32_t* order = nullptr;  // as of ArrangeInputs
};

// The rows of a layer's pairs in the order of their places, each as its expert's weights take it.
struct ArrangeExpertInputs {
  std::int64_t pairs = 0;
  std::int64_t width = 0;
  const void* x = nullptr;  // of tokens, or of pairs by place
  DType x_type = DType::f32;
  std::int64_t x_stride = 0;
  const std::int32_t* tokens = nullptr;        // of a place; null: x is by place
  const std::int32_t* expert_begin = nullptr;  // [experts + 1] places
  int experts = 0;
  // Of expert e, `stride` bytes behind those of the expert before; in device memory.
  const InputRounding* roundings = nullptr;
  const std::int32_t* const* orders = nullptr;
  std::size_t stride = 0;
  std::int64_t columns = 0;  // of all of them
  std::int64_t first = 0;    // of all of them
  // By pair, of rows that ranks cut; `pairs_of` has the pair of a place.
  InputMaxima maxima{};
  const std::int32_t* pairs_of = nullptr;
  void* out = nullptr;  // [pairs, width] by place; rows without an expert are not written
  DType out_type = DType::f32;
};
void arrange_expert_inputs(const ArrangeExpertInputs& params, StreamHandle stream);

}  // namespace motley::kernels::cuda
