#include <emmintrin.h>
#include <xmmintrin.h>

#include "base/number_types.h"
#include "kernels/cpu/expand_body.h"
#include "kernels/cpu/gemm_body.h"
#include "kernels/cpu/transposed_body.h"

namespace motley::kernels::cpu {
namespace {

// What every x86-64 has: 4 lanes, and products that round before they are added.
struct Plain {
  using Floats = __m128;
  using Words = __m128i;
  static constexpr int lanes = 4;
  static constexpr int block_tokens = 2;

  static Floats load(const std::byte* from) {
    return _mm_loadu_ps(reinterpret_cast<const float*>(from));
  }
  static Floats broadcast(float value) { return _mm_set1_ps(value); }
  static Floats fma(Floats a, Floats b, Floats c) { return _mm_add_ps(_mm_mul_ps(a, b), c); }

  static Floats widen_bf16(const std::byte* from) {
    const __m128i halves = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
    return _mm_castsi128_ps(_mm_unpacklo_epi16(_mm_setzero_si128(), halves));
  }
  static Floats widen_f16(const std::byte* from) {
    f16 halves[lanes];
    __builtin_memcpy(halves, from, sizeof halves);
    return _mm_setr_ps(halves[0].to_float(), halves[1].to_float(), halves[2].to_float(),
                       halves[3].to_float());
  }
  struct F8 {
    f8_e4m3 codes[4 * lanes];
    Floats scale;
  };
  static F8 open_f8(const std::byte* codes, float scale) {
    F8 open{};
    __builtin_memcpy(open.codes, codes, sizeof open.codes);
    open.scale = broadcast(scale);
    return open;
  }
  template <int v>
  static Floats f8(const F8& open) {
    const f8_e4m3* codes = open.codes + std::ptrdiff_t{v} * lanes;
    return _mm_mul_ps(_mm_setr_ps(codes[0].to_float(), codes[1].to_float(), codes[2].to_float(),
                                  codes[3].to_float()),
                      open.scale);
  }

  struct Int4 {
    Words words;
    Floats scale;
  };
  using Int4Narrow = Int4;
  static Int4 open_int4(const std::byte* words, float scale) {
    return {_mm_loadu_si128(reinterpret_cast<const __m128i*>(words)), broadcast(scale)};
  }
  // Lane l has scale l >> shift of `count`.
  static Int4 open_int4(const std::byte* words, const float* scales, int count, int shift) {
    alignas(64) float each[lanes];
    for (int lane = 0; lane < lanes; ++lane)
      each[lane] = lane >> shift < count ? scales[lane >> shift] : 0.0F;
    return {_mm_loadu_si128(reinterpret_cast<const __m128i*>(words)),
            load(reinterpret_cast<const std::byte*>(each))};
  }
  template <int v>
  static Floats int4(const Int4& open) {
    const Words code = _mm_and_si128(_mm_srli_epi32(open.words, 4 * v), _mm_set1_epi32(15));
    return _mm_mul_ps(_mm_cvtepi32_ps(_mm_sub_epi32(code, _mm_set1_epi32(8))), open.scale);
  }

  // Number i of four in each of `lanes` rows, `stride` bytes apart, goes to vector i.
  static void turn(const std::byte* from, std::int64_t stride, Floats (&to)[4]) {
    for (int row = 0; row < 4; ++row) to[row] = load(from + row * stride);
    _MM_TRANSPOSE4_PS(to[0], to[1], to[2], to[3]);
  }
  // bf16 at even and odd places, of words that hold two.
  static Floats low_bf16(Floats words) {
    return _mm_castsi128_ps(_mm_slli_epi32(_mm_castps_si128(words), 16));
  }
  static Floats high_bf16(Floats words) {
    return _mm_castsi128_ps(_mm_and_si128(_mm_castps_si128(words), _mm_set1_epi32(-0x10000)));
  }

  static Floats even(Floats a, Floats b) { return _mm_shuffle_ps(a, b, _MM_SHUFFLE(2, 0, 2, 0)); }
  static Floats odd(Floats a, Floats b) { return _mm_shuffle_ps(a, b, _MM_SHUFFLE(3, 1, 3, 1)); }

  static __m128 fold(Floats a, Floats b, Floats c, Floats d) {
    const Floats ab = _mm_add_ps(_mm_unpacklo_ps(a, b), _mm_unpackhi_ps(a, b));
    const Floats cd = _mm_add_ps(_mm_unpacklo_ps(c, d), _mm_unpackhi_ps(c, d));
    return _mm_add_ps(_mm_movelh_ps(ab, cd), _mm_movehl_ps(cd, ab));
  }
};

}  // namespace

void gemm_tile_plain(const GemmTile& tile) { gemm_body::gemm_tile<Plain>(tile); }
void transposed_tile_plain(const TransposedTile& tile) {
  transposed_body::transposed_tile<Plain>(tile);
}
void expand_tile_plain(const ExpandTile& tile) { expand_body::expand_tile<Plain>(tile); }

}  // namespace motley::kernels::cpu
