#pragma once

#include <cstddef>
#include <string_view>

namespace motley::text {

// The last character of a non-empty text, and its length in bytes.
struct LastCharacter {
  char32_t code_point;
  std::size_t length;
};
LastCharacter last_character(std::string_view text);

// The bytes of leading, and of trailing, white space.
std::size_t leading_white_space(std::string_view text);
std::size_t trailing_white_space(std::string_view text);

}  // namespace motley::text
