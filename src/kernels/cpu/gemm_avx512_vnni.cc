#include <immintrin.h>

#include "kernels/cpu/integer_body.h"

namespace motley::kernels::cpu {
namespace {

// Sums of four int8 products; the rest is what packing x and decoding scales needs.
struct Avx512Vnni {
  using Floats = __m512;
  using Words = __m512i;
  static constexpr int lanes = 16;
  static constexpr int block_tokens = 6;  // 24 sums + 4 weights + 1 input of 32 registers

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
  // Numbers of a table.
  static Floats gather(const float* table, const std::int32_t* at) {
    return _mm512_i32gather_ps(_mm512_loadu_si512(at), table, 4);
  }
  // Where one is NaN they give b.
  static Floats min(Floats a, Floats b) { return _mm512_min_ps(a, b); }
  static Floats max(Floats a, Floats b) { return _mm512_max_ps(a, b); }
  static Words widen_u8(const std::byte* from) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }

  // One side of the instruction is unsigned: w + 128.
  using Code = std::int8_t;
  using Sums = __m512i;
  static constexpr std::int64_t integer_step = 64;
  static constexpr int integer_bias = 128;
  static void store_codes(Words codes, Code* to) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(codes));
  }
  static Words open_codes(const std::byte* from) {
    return _mm512_xor_si512(_mm512_loadu_si512(from), _mm512_set1_epi8(-128));
  }
  static Sums add_products(Sums sums, Words w, const Code* x) {
    return _mm512_dpbusd_epi32(sums, w, _mm512_loadu_si512(x));
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
};

}  // namespace

void gemm_tile_avx512_vnni(const GemmTile& tile) { integer_body::gemm_tile<Avx512Vnni>(tile); }

}  // namespace motley::kernels::cpu
