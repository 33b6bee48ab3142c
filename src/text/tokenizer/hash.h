#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

// Hashes for the tables of tokenizers, which are read far more often than written. Use the high
// bits.
namespace motley::text {

inline std::uint64_t hash_word(std::uint64_t word) { return word * 0x9E3779B97F4A7C15U; }

inline std::uint64_t hash_bytes(std::string_view bytes) {
  const auto load = [&](std::size_t at, std::size_t count) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, count);
    return word;
  };
  std::uint64_t hash = bytes.size();
  const auto add = [&](std::uint64_t word) { hash = hash_word(std::rotl(hash, 23) ^ word); };
  std::size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) add(load(at, 8));
  // The rest is read in overlapping words, because copies of constant size are single loads.
  const std::size_t rest = bytes.size() - at;
  if (rest >= 4)
    add(load(at, 4) | load(bytes.size() - 4, 4) << 32);
  else if (rest >= 2)
    add(load(at, 2) | load(bytes.size() - 2, 2) << 16);
  else if (rest == 1)
    add(load(at, 1));
  return hash ^ hash >> 32;
}

}  // namespace motley::text
