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
  // Subnormal codes are small integers; the others get float32's exponent, the special ones its
  // largest. A NaN becomes quiet.
  static Floats widen_f16(const std::byte* from) {
    using L = IsaLanes<Plain>;
    const __m128i halves = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
    const auto code = __builtin_bit_cast(L::Words, _mm_unpacklo_epi16(halves, _mm_setzero_si128()));
    const L::Words magnitude = code & 0x7FFFU;
    const L::Words small = L::bits(L::number(magnitude) * 0x1p-24F);
    const L::Words normal = (magnitude << 13) + (112U << 23);
    const L::Words quiet = magnitude > 0x7C00U ? L::Words{} + 0x00400000U : L::Words{};
    const L::Words special = (magnitude << 13) | 0x7F800000U | quiet;
    const L::Words value = magnitude < 0x0400U ? small : normal;
    const L::Words bits = magnitude >= 0x7C00U ? special : value;
    return __builtin_bit_cast(Floats, bits | ((code & 0x8000U) << 16));
  }
  struct F8 {
    std::byte codes[4 * lanes];
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
    const auto numbers = gemm_body::ScaleLanes<Plain>::e4m3(open.codes + std::ptrdiff_t{v} * lanes);
    return _mm_mul_ps(__builtin_bit_cast(Floats, numbers), open.scale);
  }

  // Where one is NaN they give b.
  static Floats min(Floats a, Floats b) { return _mm_min_ps(a, b); }
  static Floats max(Floats a, Floats b) { return _mm_max_ps(a, b); }
  static Words widen_u8(const std::byte* from) {
    std::int32_t four = 0;
    __builtin_memcpy(&four, from, sizeof four);
    const Words zero = _mm_setzero_si128();
    return _mm_unpacklo_epi16(_mm_unpacklo_epi8(_mm_cvtsi32_si128(four), zero), zero);
  }
  static Floats widen_i8(const std::byte* from) {
    std::int32_t four = 0;
    __builtin_memcpy(&four, from, sizeof four);
    const Words bytes = _mm_unpacklo_epi8(_mm_setzero_si128(), _mm_cvtsi32_si128(four));
    return _mm_cvtepi32_ps(_mm_srai_epi32(_mm_unpacklo_epi16(_mm_setzero_si128(), bytes), 24));
  }

  static Words load_words(const std::byte* from) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  }
  // Code v of each word.
  template <int v>
  static Words int4_codes(Words words) {
    return _mm_and_si128(_mm_srli_epi32(words, 4 * v), _mm_set1_epi32(15));
  }
  template <int v>
  static Floats unsigned_int4(Words words) {
    return _mm_cvtepi32_ps(int4_codes<v>(words));
  }
  template <int v>
  static Floats signed_int4(Words words) {
    return _mm_cvtepi32_ps(_mm_sub_epi32(int4_codes<v>(words), _mm_set1_epi32(8)));
  }
  // Codes 0 and 1 are subnormal: they get the next exponent, and lose what it adds.
  template <int v>
  static Floats e2m1(Words words) {
    using L = IsaLanes<Plain>;
    const auto code = __builtin_bit_cast(L::Words, int4_codes<v>(words));
    const L::Words magnitude = code & 7U;
    const L::Words one = magnitude < 2U ? L::Words{} + (127U << 23) : L::Words{};
    const L::Words exponent = magnitude < 2U ? one : L::Words{} + (126U << 23);
    const L::Floats value = L::floats((magnitude << 22) + exponent) - L::floats(one);
    return __builtin_bit_cast(Floats, L::bits(value) | ((code & 8U) << 28));
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
    return _mm_mul_ps(signed_int4<v>(open.words), open.scale);
  }
  template <int v>
  static Floats int4(const Int4Zero& open) {
    return _mm_mul_ps(_mm_sub_ps(unsigned_int4<v>(open.words), open.zero), open.scale);
  }
  // Lane l has number l >> shift of `count`, or zero.
  static Floats spread(const float* from, int count, int shift) {
    alignas(64) float each[lanes];
    for (int lane = 0; lane < lanes; ++lane)
      each[lane] = lane >> shift < count ? from[lane >> shift] : 0.0F;
    return load(reinterpret_cast<const std::byte*>(each));
  }

  // Numbers of a table.
  static Floats gather(const float* table, const std::int32_t* at) {
    return _mm_setr_ps(table[at[0]], table[at[1]], table[at[2]], table[at[3]]);
  }

  // Products of int8: weights are widened, inputs are int16.
  using Code = std::int16_t;
  using Sums = __m128i;
  static constexpr std::int64_t integer_step = 8;
  static constexpr int integer_bias = 0;
  static void store_codes(Words codes, Code* to) {
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_packs_epi32(codes, codes));
  }
  static Words open_codes(const std::byte* from) {
    const Words bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
    return _mm_srai_epi16(_mm_unpacklo_epi8(_mm_setzero_si128(), bytes), 8);
  }
  static Sums add_products(Sums sums, Words w, const Code* x) {
    return _mm_add_epi32(sums,
                         _mm_madd_epi16(w, _mm_loadu_si128(reinterpret_cast<const __m128i*>(x))));
  }
  static auto fold_integers(Sums a, Sums b, Sums c, Sums d) {
    const Words ab = _mm_add_epi32(_mm_unpacklo_epi32(a, b), _mm_unpackhi_epi32(a, b));
    const Words cd = _mm_add_epi32(_mm_unpacklo_epi32(c, d), _mm_unpackhi_epi32(c, d));
    return __builtin_bit_cast(
        integer_body::Ints4, _mm_add_epi32(_mm_unpacklo_epi64(ab, cd), _mm_unpackhi_epi64(ab, cd)));
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
