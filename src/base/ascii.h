#pragma once

#include <string>
#include <string_view>

// ASCII character classes, independent of the locale. Other bytes are in none of them.
namespace motley::ascii {

constexpr bool is_digit(char byte) { return byte >= '0' && byte <= '9'; }

constexpr char lower(char byte) {
  return byte >= 'A' && byte <= 'Z' ? static_cast<char>(byte - 'A' + 'a') : byte;
}

constexpr bool is_letter(char byte) { return lower(byte) >= 'a' && lower(byte) <= 'z'; }

// 0 to 35; 99 for bytes that are no digit in any base.
constexpr int digit_value(char byte) {
  if (is_digit(byte)) return byte - '0';
  return is_letter(byte) ? lower(byte) - 'a' + 10 : 99;
}

inline std::string lower(std::string_view text) {
  std::string result(text);
  for (char& byte : result) byte = lower(byte);
  return result;
}

}  // namespace motley::ascii
