#include "base/system/random_id.h"

#include <cstdint>
#include <random>
#include <string_view>

#include "base/system/random_seed.h"

namespace motley {

std::string random_id() {
  constexpr std::string_view digits = "0123456789abcdef";
  thread_local std::mt19937_64 random([] {
    const std::uint64_t first = random_seed();
    const std::uint64_t second = random_seed();
    std::seed_seq seed{first, first >> 32, second, second >> 32};
    return std::mt19937_64(seed);
  }());
  std::string id;
  for (int half = 0; half < 2; ++half) {
    std::uint64_t bits = random();
    for (int i = 0; i < 16; ++i, bits >>= 4) id += digits[bits & 15];
  }
  return id;
}

}  // namespace motley
