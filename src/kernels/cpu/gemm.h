#pragma once

#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "kernels/weight_view.h"

namespace motley::kernels::cpu {

// One thread's piece of y = x W^T in float32: `rows` rows of x against outputs [out_begin, out_end)
// of w.
//   y[m][o - out_begin] = sum over k of x[row m][k] * w[o][k]
// The bits of an element depend on its own row of x, its own row of w and `in` alone: never on how
// many rows stand beside it, nor on how the outputs are cut. A call with `exact` widens everything
// to float32
// (--compute f32); without it bf16 inputs may be multiplied in bf16 and summed in float32.
struct GemmTile {
  const void* x = nullptr;
  DType x_type = DType::f32;             // f32 or bf16
  std::int64_t x_stride = 0;             // elements between rows of x
  const std::int32_t* x_rows = nullptr;  // row m is x row x_rows[m]; null: row m itself
  std::int64_t rows = 0;
  WeightView w{};
  std::int64_t out_begin = 0;
  std::int64_t out_end = 0;
  float* y = nullptr;
  std::int64_t y_stride = 0;  // elements between rows of y
  bool exact = true;
};
void gemm_tile(const GemmTile& tile);

// Elements [begin, begin + out.size()) of row o as float32, the exact meaning of the format.
void decode_row(const WeightView& w, std::int64_t o, std::int64_t begin, std::span<float> out);

}  // namespace motley::kernels::cpu
