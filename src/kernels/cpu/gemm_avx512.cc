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

  // Fewer than 64 bytes, then zeros.
  static Words load_part(const std::byte* from, std::int64_t bytes) {
    return _mm512_maskz_loadu_epi8((std::uint64_t{1} << bytes) - 1, from);
  }
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

  // Where one is NaN they give b.
  static Floats min(Floats a, Floats b) { return _mm512_min_ps(a, b); }
  static Floats max(Floats a, Floats b) { return _mm512_max_ps(a, b); }
  static Words widen_u8(const std::byte* from) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  static Floats widen_i8(const std::byte* from) {
    return _mm512_cvtepi32_ps(
        _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
  }

  static Words load_words(const std::byte* from) { return _mm512_loadu_si512(from); }
  // A permutation by the words' low four bits looks code v up: among products with the scale where
  // a step has one, or among the numbers that codes mean.
  template <int v>
  static Floats look_up(Words words, Floats table) {
    return _mm512_permutexvar_ps(_mm512_srli_epi32(words, 4 * v), table);
  }
  static Floats signed_codes() {
    return _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
  }
  static Floats unsigned_codes() {
    return _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  }
  template <int v>
  static Floats signed_int4(Words words) {
    return look_up<v>(words, signed_codes());
  }
  template <int v>
  static Floats unsigned_int4(Words words) {
    return look_up<v>(words, unsigned_codes());
  }
  template <int v>
  static Floats e2m1(Words words) {
    return look_up<v>(words, _mm512_setr_ps(0, 0.5F, 1, 1.5F, 2, 3, 4, 6, -0.0F, -0.5F, -1, -1.5F,
                                            -2, -3, -4, -6));
  }
  struct Int4 {
    Words words;
    Floats table;
  };
  static Int4 open_int4(const std::byte* words, float scale) {
    return {load_words(words), _mm512_mul_ps(signed_codes(), _mm512_set1_ps(scale))};
  }
  static Int4 open_int4(const std::byte* words, float scale, float zero) {
    const Floats codes = _mm512_sub_ps(unsigned_codes(), _mm512_set1_ps(zero));
    return {load_words(words), _mm512_mul_ps(codes, _mm512_set1_ps(scale))};
  }
  template <int v>
  static Floats int4(const Int4& open) {
    return look_up<v>(open.words, open.table);
  }
  // Lane l has number l >> shift of `count`, or zero.
  static Floats spread(const float* from, int count, int shift) {
    const auto mask = static_cast<__mmask16>((1U << count) - 1);
    const __m512i lanes_in_order =
        _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i index = _mm512_srl_epi32(lanes_in_order, _mm_cvtsi32_si128(shift));
    return _mm512_permutexvar_ps(index, _mm512_maskz_loadu_ps(mask, from));
  }

  // Numbers of a table.
  static Floats gather(const float* table, const std::int32_t* at) {
    return _mm512_i32gather_ps(_mm512_loadu_si512(at), table, 4);
  }

  // Products of int8: weights are widened, inputs are int16.
  using Code = std::int16_t;
  using Sums = __m512i;
  static constexpr std::int64_t integer_step = 32;
  static constexpr int integer_bias = 0;
  static void store_codes(Words codes, Code* to) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi32_epi16(codes));
  }
  static Words open_codes(const std::byte* from) {
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  static Sums add_products(Sums sums, Words w, const Code* x) {
    return _mm512_add_epi32(sums, _mm512_madd_epi16(w, _mm512_loadu_si512(x)));
  }
  static auto fold_integers(Sums a, Sums b, Sums c, Sums d) {
    const Words ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    const Words cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    const Words all =
        _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
    const __m256i half =
        _mm256_add_epi32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));
    return __builtin_bit_cast(
        integer_body::Ints4,
        _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1)));
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
