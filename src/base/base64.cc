#include "base/base64.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace motley {

void append_base64(std::string& text, std::string_view bytes) {
  constexpr std::string_view digits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  constexpr std::size_t group = 3;  // bytes of four digits
  for (std::size_t at = 0; at < bytes.size(); at += group) {
    const std::size_t count = std::min(group, bytes.size() - at);
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < group; ++i)
      bits = (bits << 8) | (i < count ? static_cast<unsigned char>(bytes[at + i]) : 0U);
    std::array<char, group + 1> four{};
    for (std::size_t i = 0; i < four.size(); ++i)
      four[i] = i <= count ? digits[(bits >> (18 - 6 * i)) & 63U] : '=';
    text.append(four.data(), four.size());
  }
}

}  // namespace motley
