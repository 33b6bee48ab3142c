#include <immintrin.h>

#include "kernels/cpu/gemm_body.h"

namespace motley::kernels::cpu {
namespace {

using gemm_body::chunk_inputs;
using gemm_body::rows_at_once;
using gemm_body::smaller;
using gemm_body::weight_rows;

constexpr std::int64_t step = 32;  // inputs of one instruction
constexpr int block_tokens = 6;

__m512bh load_pairs(const std::uint16_t* from) {
  return __builtin_bit_cast(__m512bh, _mm512_loadu_si512(from));
}

__m512bh load_tail(const std::uint16_t* from, std::int64_t count) {
  const auto mask = static_cast<__mmask32>((std::uint64_t{1} << count) - 1);
  return __builtin_bit_cast(__m512bh, _mm512_maskz_loadu_epi16(mask, from));
}

float fold(__m512 sum) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(sum), _mm512_extractf32x8_ps(sum, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

struct Block {
  const std::uint16_t* w[weight_rows];
  std::int64_t ahead;  // elements to the same place of the next rows, as in gemm_body's fetch_ahead
  std::int64_t count;
  const std::uint16_t* x;  // [tokens, x_stride], zeros behind `count`
  std::int64_t x_stride;
  float* y;
  std::int64_t y_stride;
  std::int64_t outs;
  bool add;
};

template <int tokens>
void multiply(const Block& block) {
  __m512 sums[tokens][weight_rows];
  for (auto& row : sums) {
    for (__m512& sum : row) sum = _mm512_setzero_ps();
  }
  const auto add_step = [&](const __m512bh(&w)[weight_rows], std::int64_t k)
                            __attribute__((always_inline)) {
#pragma GCC unroll 16
                              for (int m = 0; m < tokens; ++m) {
                                const __m512bh x = load_pairs(block.x + m * block.x_stride + k);
#pragma GCC unroll 4
                                for (int r = 0; r < weight_rows; ++r)
                                  sums[m][r] = _mm512_dpbf16_ps(sums[m][r], w[r], x);
                              }
                            };
  std::int64_t k = 0;
  for (; k + step <= block.count; k += step) {
    for (const std::uint16_t* w : block.w) __builtin_prefetch(w + k + block.ahead);
    const __m512bh w[weight_rows] = {load_pairs(block.w[0] + k), load_pairs(block.w[1] + k),
                                     load_pairs(block.w[2] + k), load_pairs(block.w[3] + k)};
    add_step(w, k);
  }
  if (const std::int64_t rest = block.count - k; rest > 0) {
    const __m512bh w[weight_rows] = {
        load_tail(block.w[0] + k, rest), load_tail(block.w[1] + k, rest),
        load_tail(block.w[2] + k, rest), load_tail(block.w[3] + k, rest)};
    add_step(w, k);
  }
  for (int m = 0; m < tokens; ++m) {
    float* y = block.y + m * block.y_stride;
    for (std::int64_t r = 0; r < block.outs; ++r) {
      const float sum = fold(sums[m][r]);
      y[r] = block.add ? y[r] + sum : sum;
    }
  }
}

void multiply_tokens(std::int64_t tokens, const Block& block) {
  switch (tokens) {
    case 1:
      return multiply<1>(block);
    case 2:
      return multiply<2>(block);
    case 3:
      return multiply<3>(block);
    case 4:
      return multiply<4>(block);
    case 5:
      return multiply<5>(block);
    default:
      return multiply<6>(block);
  }
}

}  // namespace

void gemm_tile_avx512_bf16(const GemmTile& tile) {
  alignas(64) std::uint16_t x[rows_at_once * chunk_inputs];
  const WeightView& w = tile.w;
  // Unaligned on purpose: only vector loads and memcpy read through these.
  const auto* weights = static_cast<const std::byte*>(w.data);
  const auto* inputs = static_cast<const std::byte*>(tile.x);
  for (std::int64_t first = 0; first < tile.rows; first += rows_at_once) {
    const std::int64_t tokens = smaller(rows_at_once, tile.rows - first);
    for (std::int64_t begin = 0; begin == 0 || begin < w.in; begin += chunk_inputs) {
      const std::int64_t count = smaller(chunk_inputs, w.in - begin);
      const std::int64_t padded = (count + step - 1) / step * step;
      for (std::int64_t m = 0; m < tokens; ++m) {
        const std::int64_t row = tile.x_rows != nullptr ? tile.x_rows[first + m] : first + m;
        std::uint16_t* to = x + m * padded;
        __builtin_memcpy(to, inputs + (row * tile.x_stride + begin) * 2, std::size_t(count) * 2);
        for (std::int64_t k = count; k < padded; ++k) to[k] = 0;
      }
      for (std::int64_t o = tile.out_begin; o < tile.out_end; o += weight_rows) {
        Block block{};
        block.outs = smaller(weight_rows, tile.out_end - o);
        for (int r = 0; r < weight_rows; ++r) {
          const std::int64_t row = o + smaller(r, block.outs - 1);
          block.w[r] = reinterpret_cast<const std::uint16_t*>(weights + (row * w.in + begin) * 2);
        }
        block.ahead = weight_rows * w.in;
        block.count = count;
        block.x_stride = padded;
        block.y_stride = tile.y_stride;
        block.add = begin != 0;
        const std::int64_t blocks = (tokens + block_tokens - 1) / block_tokens;
        for (std::int64_t b = 0; b < blocks; ++b) {
          const std::int64_t m = tokens * b / blocks;
          block.x = x + m * padded;
          block.y = tile.y + (first + m) * tile.y_stride + (o - tile.out_begin);
          multiply_tokens(tokens * (b + 1) / blocks - m, block);
        }
      }
    }
  }
}

}  // namespace motley::kernels::cpu
