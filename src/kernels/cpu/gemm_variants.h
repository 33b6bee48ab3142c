#pragma once

#include "kernels/cpu/gemm.h"

// One for each instruction set, from the bodies in gemm_body.h, transposed_body.h, expand_body.h.
namespace motley::kernels::cpu {

void gemm_tile_plain(const GemmTile& tile);
void gemm_tile_avx2(const GemmTile& tile);
void gemm_tile_avx512(const GemmTile& tile);
// For products of integers; everything else is avx512's.
void gemm_tile_avx512_vnni(const GemmTile& tile);
// For bf16 inputs, bf16 weights and tiles that are not exact; everything else is avx512_vnni's.
void gemm_tile_avx512_bf16(const GemmTile& tile);

void transposed_tile_plain(const TransposedTile& tile);
void transposed_tile_avx2(const TransposedTile& tile);
void transposed_tile_avx512(const TransposedTile& tile);

void expand_tile_plain(const ExpandTile& tile);
void expand_tile_avx2(const ExpandTile& tile);
void expand_tile_avx512(const ExpandTile& tile);

bool has_scales(const WeightView& w);
// Whether a weight is f32, f16 or bf16 without scales.
bool is_plain(const WeightView& w);

// What the rows of a weight have in common, found once a call.
struct RowLayout {
  const WeightView* w;
  std::int64_t row_bytes;
  std::int64_t groups;        // of a row's scales
  int block_log;              // of the inputs that share one: a power of two, or all of a row
  const float* plain_scales;  // null: they must be decoded
};
RowLayout layout_of(const WeightView& w);

// Whether the vector loops know a format whose rows they read in pieces of `smallest` inputs, each
// of which must have one scale. decode_inputs reads the others.
bool has_vector_groups(const WeightView& w, std::int64_t smallest);

// Whether a product is one of integers, int8 by int8: where both sides are rounded to int8, and
// scales begin at multiples of integer_block inputs.
bool has_integer_products(const WeightView& w);
inline constexpr std::int64_t integer_block = 64;

// The scale of inputs whose largest magnitude is `largest`, in all of the row or in a block of it.
float input_scale(const InputRounding& rounding, float largest);

// Columns [begin, begin + count) of row o as float32, number by number.
void decode_inputs(const WeightView& w, std::int64_t o, std::int64_t begin, std::int64_t count,
                   float* to);

}  // namespace motley::kernels::cpu
