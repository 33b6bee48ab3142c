#pragma once

#include <cstddef>
#include <string_view>

namespace motley::text {

// The last character of a text that is not empty, and how many bytes it takes.
struct LastCharacter {
  char32_t code_point;
  std::size_t length;
};
LastCharacter last_character(std::string_view text);

// How many bytes of white space a text begins with, and ends with.
std::size_t leading_white_space(std::string_view text);
std::size_t trailing_white_space(std::string_view text);

}  // namespace motley::text
