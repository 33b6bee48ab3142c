#pragma once

#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "kernels/weight_view.h"

namespace motley::kernels::cpu {

// One thread's piece of y = x W^T in float32: `rows` rows of x against outputs [out_begin, out_end)
// of w.
//   y[m][o - out_begin] = sum over k of x[row m][input_order[k]] * w[o][k]
// The bits of an element depend on its own row of x, its own row of w and `in` alone: never on how
// many rows stand beside it, nor on how the outputs are cut. Where w.inputs rounds x, each call
// does so first. A call with `exact` widens everything to float32 (--compute f32); without it bf16
// inputs may be multiplied in bf16 and summed in float32. int8 inputs by int8 weights are summed as
// integers either way, and have the same bits on every instruction set.
struct GemmTile {
  const void* x = nullptr;
  DType x_type = DType::f32;             // f32 or bf16
  std::int64_t x_stride = 0;             // elements between rows of x
  const std::int32_t* x_rows = nullptr;  // row m is x row x_rows[m]; null: row m itself
  InputMaxima maxima{};                  // row m's stand in its row m; null: x has whole rows
  std::int64_t rows = 0;
  WeightView w{};
  std::int64_t out_begin = 0;
  std::int64_t out_end = 0;
  float* y = nullptr;
  std::int64_t y_stride = 0;  // elements between rows of y
  bool exact = true;
};
void gemm_tile(const GemmTile& tile);

// One thread's piece of the same rows the other way round, in float32: inputs [in_begin, in_end) of
//   y[m][input_order[k] - in_begin] = sum over j < count of x[m][j] * w[first + j][k]
// or, where `add` says so, that beside what stands there. Runs of 64 rows of w are summed in order,
// then the runs are; so bits depend on the row of x, the instruction set, the format and `count`
// alone. x is never rounded, whatever w.inputs says: it is no input of the weight here.
struct TransposedTile {
  const void* x = nullptr;
  DType x_type = DType::f32;  // f32 or bf16
  std::int64_t x_stride = 0;
  const std::int32_t* x_rows = nullptr;  // as in GemmTile
  std::int64_t rows = 0;
  WeightView w{};
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t in_begin = 0;
  std::int64_t in_end = 0;
  float* y = nullptr;
  std::int64_t y_stride = 0;
  const std::int32_t* y_rows = nullptr;  // row m is y row y_rows[m]; null: row m itself
  bool add = false;
};
void transposed_tile(const TransposedTile& tile);

// One thread's piece of the way out of an adapter's rank space, outputs [out_begin, out_end) of
//   y[m][o - out_begin] += sum over r < padded of t[m][r] * b[o][r]
// Runs of 64 ranks are summed in order, each is then added to y; so bits depend on the row of t,
// the instruction set and `padded` alone.
struct ExpandTile {
  const float* t = nullptr;  // [rows, padded]
  std::int64_t t_stride = 0;
  std::int64_t rows = 0;
  const void* b = nullptr;    // [out, padded], aligned to its elements
  DType b_type = DType::f32;  // f32, bf16 or f8_e4m3
  // f8_e4m3: of each row of b, a power of two; the sums are those of f32 that holds the same.
  const float* b_scales = nullptr;
  std::int64_t padded = 0;  // a multiple of 8
  std::int64_t out_begin = 0;
  std::int64_t out_end = 0;
  float* y = nullptr;
  std::int64_t y_stride = 0;
  const std::int32_t* y_rows = nullptr;  // as in TransposedTile
};
inline constexpr std::int64_t most_f8_ranks = 8192;
void expand_tile(const ExpandTile& tile);

// Elements [begin, begin + out.size()) of row o as float32, the exact meaning of the format.
void decode_row(const WeightView& w, std::int64_t o, std::int64_t begin, std::span<float> out);

}  // namespace motley::kernels::cpu
