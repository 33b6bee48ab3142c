#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace motley::utf8 {

struct Decoded {
  char32_t code_point = 0xFFFD;
  // The bytes of the character. Of an invalid sequence: the longest prefix of a character (at least
  // 1), which one U+FFFD replaces.
  std::uint32_t length = 1;
  bool valid = false;
};

// The first character of a non-empty text. Overlong forms, surrogates and values beyond U+10FFFF
// are invalid.
Decoded decode(std::string_view text);

void append(std::string& text, char32_t code_point);

bool valid(std::string_view text);

// The text with each invalid sequence replaced by U+FFFD.
std::string repaired(std::string_view text);

// Number of characters of a text that is valid.
std::int64_t count(std::string_view text);

// The number of bytes at the end that begin an incomplete character (0 to 3).
std::size_t incomplete_tail(std::string_view text);

}  // namespace motley::utf8
