#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace motley::server {

inline constexpr std::string_view white_space = " \t\r\n";

// How many bytes at the end of a text may be the beginning of a tag whose rest has still to come.
inline std::size_t begun_tag(std::string_view text, std::string_view tag) {
  for (std::size_t bytes = std::min(text.size(), tag.size() - 1); bytes > 0; --bytes) {
    if (text.ends_with(tag.substr(0, bytes))) return bytes;
  }
  return 0;
}

// Where the white space begins that ends a text.
inline std::size_t trailing_space(std::string_view text) {
  return text.find_last_not_of(white_space) + 1;
}

inline std::size_t leading_space(std::string_view text) {
  return std::min(text.find_first_not_of(white_space), text.size());
}

}  // namespace motley::server
