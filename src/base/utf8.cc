#include "base/utf8.h"

#include <algorithm>

#include "base/check.h"

namespace motley::utf8 {
namespace {

// By lead byte: the length of the sequence, and the range of the second byte, which excludes
// overlong forms, surrogates and values beyond U+10FFFF (Unicode 16, table 3-7).
struct Lead {
  std::uint32_t length = 0;
  unsigned char second_low = 0x80;
  unsigned char second_high = 0xbf;
};

Lead lead(unsigned char byte) {
  if (byte < 0x80) return {.length = 1};
  if (byte < 0xc2) return {};
  if (byte < 0xe0) return {.length = 2};
  if (byte == 0xe0) return {.length = 3, .second_low = 0xa0};
  if (byte == 0xed) return {.length = 3, .second_high = 0x9f};
  if (byte < 0xf0) return {.length = 3};
  if (byte == 0xf0) return {.length = 4, .second_low = 0x90};
  if (byte < 0xf4) return {.length = 4};
  if (byte == 0xf4) return {.length = 4, .second_high = 0x8f};
  return {};
}

}  // namespace

Decoded decode(std::string_view text) {
  MOTLEY_DCHECK(!text.empty(), "there is no first character");
  const auto first = static_cast<unsigned char>(text[0]);
  const Lead kind = lead(first);
  if (kind.length == 1) return {.code_point = first, .length = 1, .valid = true};
  if (kind.length == 0) return {};

  char32_t code_point = first & (0x7fU >> kind.length);
  for (std::uint32_t i = 1; i < kind.length; ++i) {
    if (i >= text.size()) return {.length = i};
    const auto byte = static_cast<unsigned char>(text[i]);
    const unsigned char low = i == 1 ? kind.second_low : 0x80;
    const unsigned char high = i == 1 ? kind.second_high : 0xbf;
    if (byte < low || byte > high) return {.length = i};
    code_point = (code_point << 6) | (byte & 0x3fU);
  }
  return {.code_point = code_point, .length = kind.length, .valid = true};
}

void append(std::string& text, char32_t code_point) {
  const auto put = [&text](char32_t byte) { text += static_cast<char>(byte); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xc0 | (code_point >> 6));
    put(0x80 | (code_point & 0x3f));
  } else if (code_point < 0x10000) {
    put(0xe0 | (code_point >> 12));
    put(0x80 | ((code_point >> 6) & 0x3f));
    put(0x80 | (code_point & 0x3f));
  } else {
    put(0xf0 | (code_point >> 18));
    put(0x80 | ((code_point >> 12) & 0x3f));
    put(0x80 | ((code_point >> 6) & 0x3f));
    put(0x80 | (code_point & 0x3f));
  }
}

bool valid(std::string_view text) {
  while (!text.empty()) {
    const Decoded next = decode(text);
    if (!next.valid) return false;
    text.remove_prefix(next.length);
  }
  return true;
}

std::string repaired(std::string_view text) {
  std::string whole;
  whole.reserve(text.size());
  while (!text.empty()) {
    const Decoded next = decode(text);
    if (next.valid) {
      whole += text.substr(0, next.length);
    } else {
      append(whole, 0xFFFD);
    }
    text.remove_prefix(next.length);
  }
  return whole;
}

std::int64_t count(std::string_view text) {
  return std::ranges::count_if(
      text, [](char byte) { return (static_cast<unsigned char>(byte) & 0xc0) != 0x80; });
}

std::size_t incomplete_tail(std::string_view text) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xc0) == 0x80) continue;
    const Lead kind = lead(byte);
    if (kind.length <= back) return 0;
    const Decoded tail = decode(text.substr(text.size() - back));
    return tail.length == back ? back : 0;
  }
  return 0;
}

}  // namespace motley::utf8
