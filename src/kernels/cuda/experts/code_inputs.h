#pragma once

#include <cstdint>

#include "kernels/cuda/elementary/arrange_inputs.h"
#include "kernels/cuda/primitives/ptx.cuh"
#include "kernels/input_rounding.h"

namespace motley::kernels::cuda {

// Codes of rows in the order of places.
struct CodeExpertInputs {
  std::int64_t rows = 0;  // of x
  int experts_per_token = 1;
  int width = 0;                               // of a row; 16 divides it
  const Bf16* x = nullptr;                     // [tokens, width], or [pairs, width] by place
  const std::int32_t* places = nullptr;        // of a token's pairs; null: x is by place
  const std::int32_t* expert_begin = nullptr;  // [experts + 1] places
  int experts = 0;
  InputRounding rounding{};            // every expert's, but for fixed scales
  const ExpertInputs* each = nullptr;  // [experts], in device memory: what fixed scales are
  // By pair, of rows that ranks cut, which are by place; `pairs_of` has the pair of a place.
  InputMaxima maxima{};
  const std::int32_t* pairs_of = nullptr;
  RowCodes to{};  // rows without an expert are not written
};
void code_expert_inputs(const CodeExpertInputs& params, StreamHandle stream);

}  // namespace motley::kernels::cuda
