#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace motley::grammar {

// Converts a schema's regular expression, which may match anywhere in a text, to one that the
// compiler matches against whole JSON strings.
class SchemaPattern {
 public:
  // Nothing if the compiler cannot follow it: assertions, back references, characters that JSON
  // escapes. Without ^ and $ the whole text must match, as most authors intend; with
  // `to_the_letter` a match anywhere suffices.
  static std::optional<SchemaPattern> read(std::string_view text, bool to_the_letter);

  // ASCII, without ^ and $.
  const std::string& whole() const { return whole_; }
  // Whether the pattern occurs in a text; nothing if that takes more than a comparison.
  std::optional<bool> found_in(std::string_view text) const;
  // The same for a range of lengths, if the pattern repeats a single character.
  std::optional<std::string> with_length(std::int64_t least,
                                         std::optional<std::int64_t> most) const;

 private:
  std::string whole_;
  std::string literal_;  // the pattern's text, if it consists of literal characters only
  bool is_literal_ = false;
  bool at_begin_ = false;
  bool at_end_ = false;
  std::string repeated_;  // the one character that repeats
  bool may_be_empty_ = false;
};

}  // namespace motley::grammar
