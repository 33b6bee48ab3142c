#pragma once

#include "base/result.h"
#include "text/regex/pattern_cursor.h"
#include "text/unicode/code_set.h"

namespace motley::text::regex {

// A class in brackets: its members, or all characters except them. Case folding applies to the
// members, so the negation is stored separately.
struct CharacterClass {
  unicode::CodeSet members;
  bool negated = false;

  unicode::CodeSet set() const { return negated ? members.complement() : members; }
};

// Reads a class, whose [ was taken.
Result<CharacterClass> read_class(PatternCursor& pattern);

}  // namespace motley::text::regex
