#pragma once

#include <string_view>

#include "text/regex/class_parser.h"
#include "text/regex/syntax_tree.h"

namespace motley::text::regex {

// Whether folding may change the number of characters, which a look-behind does not support.
enum class FoldWidth : std::uint8_t { any, single };

// A literal, ignoring case: several characters also match the one that folds to them, and vice
// versa.
Node case_insensitive_text(std::u32string_view text, FoldWidth folds);

// A class, ignoring case: everything that folds like a member. A class that is not negated also
// matches the sequence to which a member folds.
Node case_insensitive_class(const CharacterClass& parsed, FoldWidth folds);

}  // namespace motley::text::regex
