#pragma once

#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/unicode/code_set.h"

namespace motley::text::unicode {

// Full case folding, Unicode 16: characters are equal without case if they fold to the same text.
class CaseFolding {
 public:
  static const CaseFolding& standard();

  // Characters that fold to the same several ones: "ss" for U+00DF and U+1E9E.
  struct Several {
    std::u32string folded;
    std::vector<char32_t> characters;
  };

  // All characters that fold to the same one as this, itself among them; none if it is alone or
  // folds to several.
  std::span<const char32_t> equals(char32_t code_point) const;

  // The one character that this folds to; itself if it folds to several.
  char32_t fold(char32_t code_point) const;

  // What folds to several characters as this does; null if it does not.
  const Several* several_of(char32_t code_point) const;

  // What folds to exactly these folded characters, or null.
  const Several* several(std::u32string_view folded) const;

  // Sorted by length, then by the folded characters.
  std::span<const Several> all_several() const { return several_; }

  // Adds what equals a member.
  void close(CodeSet& set) const;

 private:
  CaseFolding();

  std::vector<std::vector<char32_t>> classes_;  // the folded character first
  std::vector<Several> several_;
  std::unordered_map<char32_t, std::size_t> class_of_;
  std::unordered_map<char32_t, std::size_t> several_of_;
};

}  // namespace motley::text::unicode
