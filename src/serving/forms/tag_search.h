#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace motley::serving {

inline constexpr std::string_view white_space = " \t\r\n";

// The length of the longest suffix of a text that begins the tag.
inline std::size_t begun_tag(std::string_view text, std::string_view tag) {
  for (std::size_t bytes = std::min(text.size(), tag.size() - 1); bytes > 0; --bytes) {
    if (text.ends_with(tag.substr(0, bytes))) return bytes;
  }
  return 0;
}

// Whether a text begins with a mark, as far as it has arrived.
enum class Begins : std::uint8_t { no, perhaps, yes };

inline Begins begins_with(std::string_view text, std::string_view mark, bool last) {
  if (mark.empty()) return Begins::no;
  if (text.starts_with(mark)) return Begins::yes;
  return !last && mark.starts_with(text) ? Begins::perhaps : Begins::no;
}

// The begin of trailing white space.
inline std::size_t trailing_space(std::string_view text) {
  return text.find_last_not_of(white_space) + 1;
}

inline std::string_view trimmed(std::string_view text) {
  text = text.substr(0, text.find_last_not_of(white_space) + 1);
  return text.substr(std::min(text.find_first_not_of(white_space), text.size()));
}

inline std::size_t leading_space(std::string_view text) {
  return std::min(text.find_first_not_of(white_space), text.size());
}

// The bytes of function names.
inline bool is_name_byte(char byte) {
  return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
         (byte >= '0' && byte <= '9') || byte == '_' || byte == '.' || byte == '-' || byte == ':' ||
         byte == '/' || static_cast<unsigned char>(byte) >= 0x80;
}

inline std::size_t leading_name(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::find_if_not(text, is_name_byte) - text.begin());
}

// Whether it may be the name of a function.
inline bool is_plausible_name(std::string_view name) {
  return !name.empty() && name.size() <= 256 && leading_name(name) == name.size();
}

}  // namespace motley::serving
