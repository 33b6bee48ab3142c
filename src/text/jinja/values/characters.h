#pragma once

#include <cstdint>
#include <string>
#include <string_view>

// Character properties of Python's str methods, and iteration over valid UTF-8.
namespace motley::text::jinja {

// Bits of properties(), in the order of tools/make_character_tables.py.
enum Property : std::uint16_t {
  alpha = 1 << 0,
  decimal = 1 << 1,
  digit = 1 << 2,
  numeric = 1 << 3,
  printable_character = 1 << 4,
  lower = 1 << 5,
  upper = 1 << 6,
  title = 1 << 7,
  space = 1 << 8,
  case_ignorable = 1 << 9,
};

std::uint16_t properties(char32_t character);

inline bool has(char32_t character, std::uint16_t any_of) {
  return (properties(character) & any_of) != 0;
}

inline bool is_space(char32_t character) {
  if (character < 0x80)
    return character == ' ' || (character >= 0x09 && character <= 0x0D) ||
           (character >= 0x1C && character <= 0x1F);
  return has(character, space);
}

// What \w of Python's regular expressions matches.
inline bool is_word(char32_t character) {
  return character == '_' || has(character, alpha | decimal | digit | numeric);
}

// Line ends of str.splitlines, "\r\n" aside.
bool is_line_end(char32_t character);

// str.islower and str.isupper: there are characters with case, and all of those have the wanted
// one.
bool all_in_case(std::string_view text, std::uint16_t wanted);

enum class Case : std::uint8_t { lower, upper, title };

// Appends a character in another case, which may be up to three characters.
void append_in_case(std::string& text, char32_t character, Case wanted);

// The character that begins at a byte of valid UTF-8, and the bytes it takes.
struct Character {
  char32_t code_point = 0;
  std::size_t bytes = 1;
};
Character character_at(std::string_view text, std::size_t at);

// The begin of the character that ends before `end`, which is not 0.
std::size_t character_before(std::string_view text, std::size_t end);

// The byte at which character number `index` begins, or the size if there are fewer.
std::size_t byte_of_character(std::string_view text, std::size_t index);

bool is_ascii(std::string_view text);

}  // namespace motley::text::jinja
