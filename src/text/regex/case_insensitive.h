#pragma once

#include <string_view>

#include "text/regex/class_parser.h"
#include "text/regex/syntax_tree.h"

namespace motley::text::regex {

// Whether folding may turn one character into several, which a look-behind's can't.
enum class FoldWidth : std::uint8_t { any, single };

// The text without regard to case: several characters in a row also match the one that folds to
// them, and the other way round.
Node case_insensitive_text(std::u32string_view text, FoldWidth folds);

// The class without regard to case: whatever folds like a member, and of one that is not negated
// also the several characters that a member folds to.
Node case_insensitive_class(const CharacterClass& parsed, FoldWidth folds);

}  // namespace motley::text::regex
