#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace motley::utf8 {

struct Decoded {
  char32_t code_point = 0xFFFD;
  // Bytes that the character takes. Of a broken sequence: the longest part that could have begun
  // a character (at least 1), which is what one U+FFFD stands for.
  std::uint32_t length = 1;
  bool valid = false;
};

// The first character of a text that is not empty. Overlong forms, surrogates and values beyond
// U+10FFFF are broken sequences.
Decoded decode(std::string_view text);

void append(std::string& text, char32_t code_point);

bool valid(std::string_view text);

// The text with each broken sequence replaced by U+FFFD.
std::string repaired(std::string_view text);

// Number of characters of a text that is valid.
std::int64_t count(std::string_view text);

// How many bytes at the end are the beginning of a character whose rest may still come (0 to 3).
std::size_t incomplete_tail(std::string_view text);

}  // namespace motley::utf8
