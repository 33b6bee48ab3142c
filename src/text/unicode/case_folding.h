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

  // Characters that fold to the same sequence: "ss" for U+00DF and U+1E9E.
  struct Several {
    std::u32string folded;
    std::vector<char32_t> characters;
  };

  // All characters that fold to the same single character, including this one; empty if there are
  // no others or it folds to a sequence.
  std::span<const char32_t> equals(char32_t code_point) const;

  // The folded character; itself if it folds to a sequence.
  char32_t fold(char32_t code_point) const;

  // The characters that fold to the same sequence; null if it does not fold to one.
  const Several* several_of(char32_t code_point) const;

  // The characters that fold to exactly this sequence, or null.
  const Several* several(std::u32string_view folded) const;

  // Sorted by length, then by the folded characters.
  std::span<const Several> all_several() const { return several_; }

  // Adds all characters that equal a member without case.
  void close(CodeSet& set) const;

 private:
  CaseFolding();

  std::vector<std::vector<char32_t>> classes_;  // the folded character first
  std::vector<Several> several_;
  std::unordered_map<char32_t, std::size_t> class_of_;
  std::unordered_map<char32_t, std::size_t> several_of_;
};

}  // namespace motley::text::unicode
