#pragma once

#include "kernels/cpu/gemm.h"

// One for each instruction set, from the bodies in gemm_body.h, transposed_body.h, expand_body.h.
namespace motley::kernels::cpu {

void gemm_tile_plain(const GemmTile& tile);
void gemm_tile_avx2(const GemmTile& tile);
void gemm_tile_avx512(const GemmTile& tile);
// For bf16 inputs, bf16 weights and tiles that are not exact; everything else is avx512's.
void gemm_tile_avx512_bf16(const GemmTile& tile);

void transposed_tile_plain(const TransposedTile& tile);
void transposed_tile_avx2(const TransposedTile& tile);
void transposed_tile_avx512(const TransposedTile& tile);

void expand_tile_plain(const ExpandTile& tile);
void expand_tile_avx2(const ExpandTile& tile);
void expand_tile_avx512(const ExpandTile& tile);

// Whether the blocks of a format's scales suit the vector loops: powers of two that an FP8 step, or
// a word of int4 codes, fits in. decode_inputs reads the others.
bool has_vector_blocks(const WeightView& w, int f8_step);

// Inputs [begin, begin + count) of row o as float32, number by number.
void decode_inputs(const WeightView& w, std::int64_t o, std::int64_t begin, std::int64_t count,
                   float* to);

}  // namespace motley::kernels::cpu
