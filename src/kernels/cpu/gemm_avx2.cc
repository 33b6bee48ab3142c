#include <immintrin.h>

#include "kernels/cpu/expand_body.h"
#include "kernels/cpu/gemm_body.h"
#include "kernels/cpu/transposed_body.h"

namespace motley::kernels::cpu {
namespace {

struct Avx2 {
  using Floats = __m256;
  using Words = __m256i;
  static constexpr int lanes = 8;
  static constexpr int block_tokens = 2;  // 8 sums + 4 weights + 1 input of 16 registers

  static Floats load(const std::byte* from) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(from));
  }
  static Floats broadcast(float value) { return _mm256_set1_ps(value); }
  static Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }

  static __m128i load_halves(const std::byte* from) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  }
  static Floats widen_bf16(const std::byte* from) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_halves(from)), 16));
  }
  static Floats widen_f16(const std::byte* from) { return _mm256_cvtph_ps(load_halves(from)); }
  // A code's bits stand in an f16 that is 2^8 times smaller. 0x7F is the only NaN; as a sum with
  // one NaN is NaN whatever stands beside it, a step that has one takes NaN for its scale.
  struct F8 {
    Words codes;
    Floats scale;  // times 2^8
  };
  static F8 open_f8(const std::byte* from, float scale) {
    const Words codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    const Words magnitudes = _mm256_and_si256(codes, _mm256_set1_epi8(0x7F));
    const Words nans = _mm256_cmpeq_epi8(magnitudes, _mm256_set1_epi8(0x7F));
    return {codes,
            broadcast(_mm256_movemask_epi8(nans) != 0 ? __builtin_nanf("") : scale * 256.0F)};
  }
  template <int v>
  static Floats f8(const F8& open) {
    const __m128i codes = _mm_cvtepi8_epi16(_mm_cvtsi64_si128(_mm256_extract_epi64(open.codes, v)));
    // The sign, which stands in bits 7 to 15, is left in bit 15 alone.
    const __m128i half = _mm_and_si128(_mm_slli_epi16(codes, 7), _mm_set1_epi16(-0x4080));
    return _mm256_mul_ps(_mm256_cvtph_ps(half), open.scale);
  }

  // Where one is NaN they give b.
  static Floats min(Floats a, Floats b) { return _mm256_min_ps(a, b); }
  static Floats max(Floats a, Floats b) { return _mm256_max_ps(a, b); }
  static Words widen_u8(const std::byte* from) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
  }
  static Floats widen_i8(const std::byte* from) {
    return _mm256_cvtepi32_ps(
        _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
  }

  static Words load_words(const std::byte* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  // Code v of each word.
  template <int v>
  static Words int4_codes(Words words) {
    return _mm256_and_si256(_mm256_srli_epi32(words, 4 * v), _mm256_set1_epi32(15));
  }
  template <int v>
  static Floats unsigned_int4(Words words) {
    return _mm256_cvtepi32_ps(int4_codes<v>(words));
  }
  template <int v>
  static Floats signed_int4(Words words) {
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(int4_codes<v>(words), _mm256_set1_epi32(8)));
  }
  // A permutation by three bits of the code looks the magnitude up; the fourth is the sign.
  template <int v>
  static Floats e2m1(Words words) {
    const Floats magnitudes = _mm256_setr_ps(0, 0.5F, 1, 1.5F, 2, 3, 4, 6);
    const Words sign = _mm256_and_si256(_mm256_slli_epi32(words, 28 - 4 * v),
                                        _mm256_set1_epi32(static_cast<int>(0x80000000U)));
    return _mm256_or_ps(_mm256_permutevar8x32_ps(magnitudes, _mm256_srli_epi32(words, 4 * v)),
                        _mm256_castsi256_ps(sign));
  }
  struct Int4 {
    Words words;
    Floats scale;
  };
  struct Int4Zero {
    Words words;
    Floats scale;
    Floats zero;
  };
  static Int4 open_int4(const std::byte* words, float scale) {
    return {load_words(words), broadcast(scale)};
  }
  static Int4Zero open_int4(const std::byte* words, float scale, float zero) {
    return {load_words(words), broadcast(scale), broadcast(zero)};
  }
  template <int v>
  static Floats int4(const Int4& open) {
    return _mm256_mul_ps(signed_int4<v>(open.words), open.scale);
  }
  template <int v>
  static Floats int4(const Int4Zero& open) {
    return _mm256_mul_ps(_mm256_sub_ps(unsigned_int4<v>(open.words), open.zero), open.scale);
  }
  // Lane l has number l >> shift of `count`, or zero.
  static Floats spread(const float* from, int count, int shift) {
    const Words order = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const Words wanted = _mm256_cmpgt_epi32(_mm256_set1_epi32(count), order);
    const Words index = _mm256_srl_epi32(order, _mm_cvtsi32_si128(shift));
    return _mm256_permutevar8x32_ps(_mm256_maskload_ps(from, wanted), index);
  }

  // Numbers of a table.
  static Floats gather(const float* table, const std::int32_t* at) {
    return _mm256_i32gather_ps(table, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)), 4);
  }

  // Products of int8: weights are widened, inputs are int16.
  using Code = std::int16_t;
  using Sums = __m256i;
  static constexpr std::int64_t integer_step = 16;
  static constexpr int integer_bias = 0;
  static void store_codes(Words codes, Code* to) {
    _mm_storeu_si128(
        reinterpret_cast<__m128i*>(to),
        _mm_packs_epi32(_mm256_castsi256_si128(codes), _mm256_extracti128_si256(codes, 1)));
  }
  static Words open_codes(const std::byte* from) {
    return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  static Sums add_products(Sums sums, Words w, const Code* x) {
    return _mm256_add_epi32(
        sums, _mm256_madd_epi16(w, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x))));
  }
  static auto fold_integers(Sums a, Sums b, Sums c, Sums d) {
    const Words ab = _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
    const Words cd = _mm256_add_epi32(_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
    const Words all =
        _mm256_add_epi32(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd));
    return __builtin_bit_cast(integer_body::Ints4, _mm_add_epi32(_mm256_castsi256_si128(all),
                                                                 _mm256_extracti128_si256(all, 1)));
  }

  // Number i of four in each of `lanes` rows, `stride` bytes apart, goes to vector i. Rows 4 apart
  // share a vector, so that no step crosses its halves.
  static void turn(const std::byte* from, std::int64_t stride, Floats (&to)[4]) {
    const auto quad = [&](int row) {
      return _mm_loadu_ps(reinterpret_cast<const float*>(from + row * stride));
    };
    const auto rows = [&](int row) { return _mm256_set_m128(quad(row + 4), quad(row)); };
    const Floats r0 = rows(0);
    const Floats r1 = rows(1);
    const Floats r2 = rows(2);
    const Floats r3 = rows(3);
    const __m256d low01 = _mm256_castps_pd(_mm256_unpacklo_ps(r0, r1));
    const __m256d high01 = _mm256_castps_pd(_mm256_unpackhi_ps(r0, r1));
    const __m256d low23 = _mm256_castps_pd(_mm256_unpacklo_ps(r2, r3));
    const __m256d high23 = _mm256_castps_pd(_mm256_unpackhi_ps(r2, r3));
    to[0] = _mm256_castpd_ps(_mm256_unpacklo_pd(low01, low23));
    to[1] = _mm256_castpd_ps(_mm256_unpackhi_pd(low01, low23));
    to[2] = _mm256_castpd_ps(_mm256_unpacklo_pd(high01, high23));
    to[3] = _mm256_castpd_ps(_mm256_unpackhi_pd(high01, high23));
  }
  // bf16 at even and odd places, of words that hold two.
  static Floats low_bf16(Floats words) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(words), 16));
  }
  static Floats high_bf16(Floats words) {
    return _mm256_and_ps(words, _mm256_castsi256_ps(_mm256_set1_epi32(-0x10000)));
  }

  static Floats even(Floats a, Floats b) {
    return in_order(_mm256_shuffle_ps(a, b, _MM_SHUFFLE(2, 0, 2, 0)));
  }
  static Floats odd(Floats a, Floats b) {
    return in_order(_mm256_shuffle_ps(a, b, _MM_SHUFFLE(3, 1, 3, 1)));
  }
  // A shuffle works within halves of 128 bits: pairs come as a, b, a, b.
  static Floats in_order(Floats pairs) {
    return _mm256_castpd_ps(
        _mm256_permute4x64_pd(_mm256_castps_pd(pairs), _MM_SHUFFLE(3, 1, 2, 0)));
  }

  // Each half becomes four sums, one of each; then the halves meet.
  static __m128 fold(Floats a, Floats b, Floats c, Floats d) {
    const Floats ab = _mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
    const Floats cd = _mm256_add_ps(_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
    const __m256d low = _mm256_unpacklo_pd(_mm256_castps_pd(ab), _mm256_castps_pd(cd));
    const __m256d high = _mm256_unpackhi_pd(_mm256_castps_pd(ab), _mm256_castps_pd(cd));
    const Floats all = _mm256_add_ps(_mm256_castpd_ps(low), _mm256_castpd_ps(high));
    return _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1));
  }
};

}  // namespace

void gemm_tile_avx2(const GemmTile& tile) { gemm_body::gemm_tile<Avx2>(tile); }
void transposed_tile_avx2(const TransposedTile& tile) {
  transposed_body::transposed_tile<Avx2>(tile);
}
void expand_tile_avx2(const ExpandTile& tile) { expand_body::expand_tile<Avx2>(tile); }

}  // namespace motley::kernels::cpu
