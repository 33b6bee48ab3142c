#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace motley {

// SHA-256 (FIPS 180-4), with the processor's instructions for it where it has them.
class Sha256 {
 public:
  using Digest = std::array<std::byte, 32>;
  enum class With : std::uint8_t { best, plain_code };  // the same digests

  explicit Sha256(With with = With::best) : with_(with) {}

  void add(std::span<const std::byte> bytes);
  void add(std::string_view text) { add(std::as_bytes(std::span(text))); }
  // Ends the hash; nothing may be added then.
  Digest digest();

 private:
  static constexpr std::size_t block_bytes = 64;

  std::array<std::uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  With with_;
  std::array<std::byte, block_bytes> rest_ = {};
  std::size_t rest_bytes_ = 0;
  std::uint64_t bytes_ = 0;
};

// In hexadecimal digits.
std::string to_hex(std::span<const std::byte> bytes);

}  // namespace motley
