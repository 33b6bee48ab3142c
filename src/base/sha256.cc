#include "base/sha256.h"

#include <algorithm>
#include <bit>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace motley {
namespace {

using State = std::array<std::uint32_t, 8>;
constexpr std::size_t block = 64;

constexpr std::array<std::uint32_t, 64> round_constants = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

std::uint32_t word_at(const std::byte* at) {
  return (std::to_integer<std::uint32_t>(at[0]) << 24) |
         (std::to_integer<std::uint32_t>(at[1]) << 16) |
         (std::to_integer<std::uint32_t>(at[2]) << 8) | std::to_integer<std::uint32_t>(at[3]);
}

void add_block(State& state, const std::byte* data) {
  std::array<std::uint32_t, 64> w{};
  for (std::size_t i = 0; i < 16; ++i) w[i] = word_at(data + 4 * i);
  for (std::size_t i = 16; i < 64; ++i) {
    const std::uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
    const std::uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (std::size_t i = 0; i < 64; ++i) {
    const std::uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const std::uint32_t first = h + s1 + ((e & f) ^ (~e & g)) + round_constants[i] + w[i];
    const std::uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const std::uint32_t second = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + first;
    d = c;
    c = b;
    b = a;
    a = first + second;
  }
  const State sum = {a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < sum.size(); ++i) state[i] += sum[i];
}

void add_blocks(State& state, const std::byte* data, std::size_t blocks) {
  for (std::size_t i = 0; i < blocks; ++i) add_block(state, data + block * i);
}

#if defined(__x86_64__)

bool has_instructions() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  constexpr unsigned sha = 1U << 29;
  constexpr unsigned sse41 = 1U << 19;
  constexpr unsigned ssse3 = 1U << 9;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (b & sha) == 0) return false;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & sse41) != 0 && (c & ssse3) != 0;
}

// The instructions keep the state as (a, b, e, f) and (c, d, g, h), and do four rounds in two.
__attribute__((target("sha,sse4.1,ssse3"))) void add_blocks_by_instructions(State& state,
                                                                            const std::byte* data,
                                                                            std::size_t blocks) {
  const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
  auto* const words = reinterpret_cast<__m128i*>(state.data());
  const __m128i dcba = _mm_shuffle_epi32(_mm_loadu_si128(words), 0xb1);      // c d a b
  const __m128i hgfe = _mm_shuffle_epi32(_mm_loadu_si128(words + 1), 0x1b);  // e f g h
  __m128i abef = _mm_alignr_epi8(dcba, hgfe, 8);
  __m128i cdgh = _mm_blend_epi16(hgfe, dcba, 0xf0);
  for (std::size_t i = 0; i < blocks; ++i, data += block) {
    const __m128i abef_before = abef;
    const __m128i cdgh_before = cdgh;
    __m128i w[4];
    for (int part = 0; part < 4; ++part)
      w[part] = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(data) + part),
                                 big_endian);
    for (int round = 0; round < 16; ++round) {
      const int now = round & 3;
      if (round >= 4) {
        const __m128i last = w[(now + 3) & 3];
        const __m128i sum = _mm_add_epi32(_mm_sha256msg1_epu32(w[now], w[(now + 1) & 3]),
                                          _mm_alignr_epi8(last, w[(now + 2) & 3], 4));
        w[now] = _mm_sha256msg2_epu32(sum, last);
      }
      const __m128i constants =
          _mm_loadu_si128(reinterpret_cast<const __m128i*>(round_constants.data()) + round);
      const __m128i message = _mm_add_epi32(w[now], constants);
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, message);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(message, 0x0e));
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  const __m128i feba = _mm_shuffle_epi32(abef, 0x1b);
  const __m128i dchg = _mm_shuffle_epi32(cdgh, 0xb1);
  _mm_storeu_si128(words, _mm_blend_epi16(feba, dchg, 0xf0));
  _mm_storeu_si128(words + 1, _mm_alignr_epi8(dchg, feba, 8));
}

#endif

using AddBlocks = void (*)(State&, const std::byte*, std::size_t);

AddBlocks best_add_blocks() {
#if defined(__x86_64__)
  if (has_instructions()) return add_blocks_by_instructions;
#endif
  return add_blocks;
}

AddBlocks add_blocks_with(Sha256::With with) {
  static const AddBlocks best = best_add_blocks();
  return with == Sha256::With::best ? best : add_blocks;
}

}  // namespace

void Sha256::add(std::span<const std::byte> bytes) {
  const AddBlocks add_all = add_blocks_with(with_);
  bytes_ += bytes.size();
  if (rest_bytes_ > 0) {
    const std::size_t count = std::min(block_bytes - rest_bytes_, bytes.size());
    std::ranges::copy(bytes.first(count), rest_.begin() + static_cast<std::ptrdiff_t>(rest_bytes_));
    rest_bytes_ += count;
    bytes = bytes.subspan(count);
    if (rest_bytes_ < block_bytes) return;
    add_all(state_, rest_.data(), 1);
    rest_bytes_ = 0;
  }
  const std::size_t blocks = bytes.size() / block_bytes;
  add_all(state_, bytes.data(), blocks);
  const auto rest = bytes.subspan(blocks * block_bytes);
  std::ranges::copy(rest, rest_.begin());
  rest_bytes_ = rest.size();
}

Sha256::Digest Sha256::digest() {
  const std::uint64_t bits = bytes_ * 8;
  const std::byte one{0x80};
  add({&one, 1});
  constexpr std::array<std::byte, block_bytes> zeros = {};
  constexpr std::size_t length_at = block_bytes - sizeof bits;
  add(std::span(zeros).first((block_bytes + length_at - rest_bytes_) % block_bytes));
  std::array<std::byte, sizeof bits> length{};
  for (std::size_t i = 0; i < length.size(); ++i)
    length[i] = static_cast<std::byte>(bits >> (8 * (length.size() - 1 - i)));
  add(length);
  Digest digest;
  for (std::size_t i = 0; i < digest.size(); ++i)
    digest[i] = static_cast<std::byte>(state_[i / 4] >> (8 * (3 - i % 4)));
  return digest;
}

std::string to_hex(std::span<const std::byte> bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::byte each : bytes) {
    text += digits[std::to_integer<std::size_t>(each >> 4)];
    text += digits[std::to_integer<std::size_t>(each & std::byte{15})];
  }
  return text;
}

}  // namespace motley
