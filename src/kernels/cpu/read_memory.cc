#include "kernels/read_memory.h"

#include <emmintrin.h>

#include "base/system/thread_pool.h"

namespace motley::kernels::cpu {
namespace {

std::uint64_t sum_of(const __m128i* line) {
  constexpr std::int64_t lines = ReadMemory::unit / 64;
  __m128i a = _mm_setzero_si128();
  __m128i b = a;
  __m128i c = a;
  __m128i d = a;
  for (std::int64_t i = 0; i < lines; ++i, line += 4) {
    a = _mm_add_epi64(a, _mm_load_si128(line));
    b = _mm_add_epi64(b, _mm_load_si128(line + 1));
    c = _mm_add_epi64(c, _mm_load_si128(line + 2));
    d = _mm_add_epi64(d, _mm_load_si128(line + 3));
  }
  const __m128i sum = _mm_add_epi64(_mm_add_epi64(a, b), _mm_add_epi64(c, d));
  return static_cast<std::uint64_t>(_mm_cvtsi128_si64(sum)) +
         static_cast<std::uint64_t>(_mm_cvtsi128_si64(_mm_unpackhi_epi64(sum, sum)));
}

}  // namespace

void read_memory(const ReadMemory& params, StreamHandle stream) {
  auto* const pool = static_cast<ThreadPool*>(stream.native);
  const auto* const data = static_cast<const __m128i*>(params.data);
  constexpr std::int64_t vectors = ReadMemory::unit / 16;
  const auto read = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t unit = begin; unit < end; ++unit)
      params.sums[unit] = sum_of(data + unit * vectors);
  };
  if (pool == nullptr) return read(0, params.units);
  pool->for_ranges(params.units, 16, read);
}

}  // namespace motley::kernels::cpu
