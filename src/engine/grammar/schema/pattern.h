#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace motley::engine {

// A regular expression of a schema, which a text matches where it is found in it, as one that the
// compiler matches against whole strings of JSON.
class SchemaPattern {
 public:
  // Nothing where the compiler could not follow it: assertions, references back, characters that
  // JSON escapes. Without ^ and $ the whole text must match, as most authors mean it; what is found
  // anywhere would match as well, and does where the pattern is taken `to_the_letter`.
  static std::optional<SchemaPattern> read(std::string_view text, bool to_the_letter);

  // ASCII, without ^ and $.
  const std::string& whole() const { return whole_; }
  // Whether the pattern is found in a text; nothing where that takes more than to compare.
  std::optional<bool> found_in(std::string_view text) const;
  // The same for texts of so many characters, where the pattern repeats a single one.
  std::optional<std::string> with_length(std::int64_t least,
                                         std::optional<std::int64_t> most) const;

 private:
  std::string whole_;
  std::string literal_;  // what the pattern says, if it is nothing but characters
  bool is_literal_ = false;
  bool at_begin_ = false;
  bool at_end_ = false;
  std::string repeated_;  // the one character that repeats
  bool may_be_empty_ = false;
};

}  // namespace motley::engine
