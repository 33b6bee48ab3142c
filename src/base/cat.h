#pragma once

#include <charconv>
#include <concepts>
#include <string>
#include <string_view>

namespace motley {

inline void append(std::string& text, std::string_view piece) { text += piece; }
inline void append(std::string& text, char piece) { text += piece; }

// A template, because a pointer would convert to a plain bool.
template <std::same_as<bool> Boolean>
void append(std::string& text, Boolean piece) {
  text += piece ? "true" : "false";
}

// Integers in decimal; floating point in the shortest form that reads back as the same number.
template <class T>
  requires((std::integral<T> || std::floating_point<T>) && !std::same_as<T, bool> &&
           !std::same_as<T, char>)
void append(std::string& text, T number) {
  char digits[64];
  const auto end = std::to_chars(digits, digits + sizeof digits, number).ptr;
  text.append(digits, end);
}

// One string from any mix of strings, characters, booleans and numbers.
template <class... Pieces>
std::string cat(const Pieces&... pieces) {
  std::string text;
  (append(text, pieces), ...);
  return text;
}

// "a, b, c"
template <class Range>
std::string join(const Range& items, std::string_view separator = ", ") {
  std::string text;
  bool first = true;
  for (const auto& item : items) {
    if (!first) text += separator;
    first = false;
    append(text, item);
  }
  return text;
}

// The text on one line, in the order of its bytes: control characters become \n, \t or \x1b; line
// separators, directional overrides and invalid UTF-8 become \xNN.
std::string printable(std::string_view text);

// A name from outside, for messages: in single quotes, printable, cut at 200 bytes.
std::string quote(std::string_view name);

}  // namespace motley
