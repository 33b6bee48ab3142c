#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace motley::serving {

// A Python literal as JSON text, in valid UTF-8, or nothing where the text is none:
//   None, True, False, and JSON's null, true, false
//   integers with all their digits, floats as they are written; none beyond a 64-bit float's range
//   strings in any quotes, raw or not, side by side too; \N{NAME} is not known, and a line end may
//     stand in any of them, because models write it
//   lists, tuples (arrays), and dicts, of which the last value of a key counts; keys that are
//     None, a boolean or a number become their JSON text
// It is at most 64 brackets deep.
std::optional<std::string> python_literal_to_json(std::string_view text);

// Finds the end of a literal in text that arrives in pieces: the `,`, `)`, `]` or `}` after it,
// outside of all brackets and quotes. A quote that is followed by anything but such a character or
// another string is part of the string, because models forget to escape them.
class LiteralExtent {
 public:
  // How many bytes of `text` belong to the literal: all, or those before the byte that ends it.
  std::size_t take(std::string_view text);
  bool ended() const { return ended_; }

 private:
  enum class At : std::uint8_t {
    outside,
    first_quote,    // after a quote that may be the first of three
    second_quote,   // after two quotes, which are an empty string unless a third follows
    string,         // in quotes
    closed,         // after a quote that ends a string, unless other text follows
    prefix,         // after a letter that may begin another string
    triple_string,  // in triple quotes
  };

  void take_outside(char byte);
  void take_inside(char byte);
  void take_after_quote(char byte);

  At at_ = At::outside;
  char quote_ = 0;
  int closing_ = 0;  // consecutive quotes that may close a triple-quoted string
  bool escaped_ = false;
  bool ended_ = false;
  std::int64_t depth_ = 0;
};

}  // namespace motley::serving
