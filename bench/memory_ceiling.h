#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <emmintrin.h>
#include <vector>

#include "base/clock.h"
#include "base/thread_pool.h"

namespace motley::bench {

// What all threads of a pool together read from memory in a second: a GiB in pieces of 4 MiB,
// handed out to whoever is free.
class MemoryCeiling {
 public:
  explicit MemoryCeiling(ThreadPool& pool) : pool_(pool), memory_(bytes / 8, 1), sums_(pieces) {}

  // The best of several, in bytes a second: on a machine that others use too, it drifts.
  double measure(int runs) {
    double best = 0;
    for (int run = 0; run < runs; ++run) {
      const auto start = std::chrono::steady_clock::now();
      pool_.for_tasks(pieces, [&](std::int64_t piece) { read(piece); });
      const double time = seconds(std::chrono::steady_clock::now() - start);
      best = std::max(best, static_cast<double>(bytes) / time);
    }
    return best;
  }

 private:
  static constexpr std::int64_t bytes = std::int64_t{1} << 30;
  static constexpr std::int64_t pieces = 256;

  // Written, so that the loop stays.
  struct alignas(64) Sum {
    __m128i value;
  };

  void read(std::int64_t piece) {
    constexpr std::int64_t lines = bytes / 64 / pieces;
    const auto* line = reinterpret_cast<const __m128i*>(memory_.data()) + piece * lines * 4;
    __m128i a = _mm_setzero_si128();
    __m128i b = a;
    __m128i c = a;
    __m128i d = a;
    for (std::int64_t i = 0; i < lines; ++i, line += 4) {
      a = _mm_add_epi64(a, _mm_loadu_si128(line));
      b = _mm_add_epi64(b, _mm_loadu_si128(line + 1));
      c = _mm_add_epi64(c, _mm_loadu_si128(line + 2));
      d = _mm_add_epi64(d, _mm_loadu_si128(line + 3));
    }
    sums_[static_cast<std::size_t>(piece)].value =
        _mm_add_epi64(_mm_add_epi64(a, b), _mm_add_epi64(c, d));
  }

  ThreadPool& pool_;
  std::vector<std::uint64_t> memory_;
  std::vector<Sum> sums_;
};

}  // namespace motley::bench
