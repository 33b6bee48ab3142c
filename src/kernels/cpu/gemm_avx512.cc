#include <immintrin.h>

#include "kernels/cpu/expand_body.h"
#include "kernels/cpu/gemm_body.h"
#include "kernels/cpu/transposed_body.h"

namespace motley::kernels::cpu {
namespace {

struct Avx512 {
  using Floats = __m512;
  using Words = __m512i;
  static constexpr int lanes = 16;
  static constexpr int block_tokens = 6;  // 24 sums + 4 weights + 1 input of 32 registers

  static Floats load(const std::byte* from) { return _mm512_loadu_ps(from); }
  static Floats broadcast(float value) { return _mm512_set1_ps(value); }
  static Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }

  static Floats widen_bf16(const std::byte* from) {
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
  }
  static Floats widen_f16(const std::byte* from) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  // A code's bits stand in an f16 that is 2^8 times smaller. 0x7F is the only NaN; as a sum with
  // one NaN is NaN whatever stands beside it, a step that has one takes NaN for its scale.
  struct F8 {
    Words halves[2];
    Floats scale;  // times 2^8
  };
  static F8 open_f8(const std::byte* from, float scale) {
    const Words codes = _mm512_loadu_si512(from);
    const Words magnitudes = _mm512_and_si512(codes, _mm512_set1_epi8(0x7F));
    const bool nan = _mm512_cmpeq_epi8_mask(magnitudes, _mm512_set1_epi8(0x7F)) != 0;
    const float factor = nan ? __builtin_nanf("") : scale * 256.0F;
    return {
        {spread_f8(_mm512_castsi512_si256(codes)), spread_f8(_mm512_extracti64x4_epi64(codes, 1))},
        _mm512_set1_ps(factor)};
  }
  // Widened with its sign, a code has that in bits 7 to 15; shifted, it is left in bit 15 alone.
  static Words spread_f8(__m256i codes) {
    const Words wide = _mm512_slli_epi16(_mm512_cvtepi8_epi16(codes), 7);
    return _mm512_and_si512(wide, _mm512_set1_epi16(-0x4080));
  }
  template <int v>
  static Floats f8(const F8& open) {
    const __m256i half = _mm512_extracti64x4_epi64(open.halves[v / 2], v % 2);
    return _mm512_mul_ps(_mm512_cvtph_ps(half), open.scale);
  }

  // A permutation by the words' low four bits looks the value up: among products with the scale,
  // or among codes where lanes have scales of their own.
  struct Int4 {
    Words words;
    Floats table;
  };
  struct Int4Narrow {
    Words words;
    Floats scale;
  };
  static Floats codes() {
    return _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
  }
  static Int4 open_int4(const std::byte* words, float scale) {
    return {_mm512_loadu_si512(words), _mm512_mul_ps(codes(), _mm512_set1_ps(scale))};
  }
  // Lane l has scale l >> shift of `count`.
  static Int4Narrow open_int4(const std::byte* words, const float* scales, int count, int shift) {
    const auto mask = static_cast<__mmask16>((1U << count) - 1);
    const __m512i lanes_in_order =
        _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i index = _mm512_srl_epi32(lanes_in_order, _mm_cvtsi32_si128(shift));
    return {_mm512_loadu_si512(words),
            _mm512_permutexvar_ps(index, _mm512_maskz_loadu_ps(mask, scales))};
  }
  template <int v>
  static Floats int4(const Int4& open) {
    return _mm512_permutexvar_ps(_mm512_srli_epi32(open.words, 4 * v), open.table);
  }
  template <int v>
  static Floats int4(const Int4Narrow& open) {
    return _mm512_mul_ps(_mm512_permutexvar_ps(_mm512_srli_epi32(open.words, 4 * v), codes()),
                         open.scale);
  }

  // Number i of four in each of `lanes` rows, `stride` bytes apart, goes to vector i. Rows 4 apart
  // share a vector, so that no step crosses its quarters.
  static void turn(const std::byte* from, std::int64_t stride, Floats (&to)[4]) {
    const auto quad = [&](int row) {
      return _mm_loadu_ps(reinterpret_cast<const float*>(from + row * stride));
    };
    const auto rows = [&](int row) {
      Floats four = _mm512_castps128_ps512(quad(row));
      four = _mm512_insertf32x4(four, quad(row + 4), 1);
      four = _mm512_insertf32x4(four, quad(row + 8), 2);
      return _mm512_insertf32x4(four, quad(row + 12), 3);
    };
    const Floats r0 = rows(0);
    const Floats r1 = rows(1);
    const Floats r2 = rows(2);
    const Floats r3 = rows(3);
    const __m512d low01 = _mm512_castps_pd(_mm512_unpacklo_ps(r0, r1));
    const __m512d high01 = _mm512_castps_pd(_mm512_unpackhi_ps(r0, r1));
    const __m512d low23 = _mm512_castps_pd(_mm512_unpacklo_ps(r2, r3));
    const __m512d high23 = _mm512_castps_pd(_mm512_unpackhi_ps(r2, r3));
    to[0] = _mm512_castpd_ps(_mm512_unpacklo_pd(low01, low23));
    to[1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low01, low23));
    to[2] = _mm512_castpd_ps(_mm512_unpacklo_pd(high01, high23));
    to[3] = _mm512_castpd_ps(_mm512_unpackhi_pd(high01, high23));
  }
  // bf16 at even and odd places, of words that hold two.
  static Floats low_bf16(Floats words) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(words), 16));
  }
  static Floats high_bf16(Floats words) {
    return _mm512_and_ps(words, _mm512_castsi512_ps(_mm512_set1_epi32(-0x10000)));
  }

  static Floats even(Floats a, Floats b) {
    const __m512i index =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    return _mm512_permutex2var_ps(a, index, b);
  }
  static Floats odd(Floats a, Floats b) {
    const __m512i index =
        _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    return _mm512_permutex2var_ps(a, index, b);
  }

  // Each quarter becomes four sums, one of each; then the quarters meet.
  static __m128 fold(Floats a, Floats b, Floats c, Floats d) {
    const Floats ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    const Floats cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    const __m512d low = _mm512_unpacklo_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd));
    const __m512d high = _mm512_unpackhi_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd));
    const Floats all = _mm512_add_ps(_mm512_castpd_ps(low), _mm512_castpd_ps(high));
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(all), _mm512_extractf32x8_ps(all, 1));
    return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  }
};

}  // namespace

void gemm_tile_avx512(const GemmTile& tile) { gemm_body::gemm_tile<Avx512>(tile); }
void transposed_tile_avx512(const TransposedTile& tile) {
  transposed_body::transposed_tile<Avx512>(tile);
}
void expand_tile_avx512(const ExpandTile& tile) { expand_body::expand_tile<Avx512>(tile); }

}  // namespace motley::kernels::cpu
