#pragma once

#include <optional>

#include "base/result.h"
#include "text/regex/pattern_cursor.h"
#include "text/unicode/code_set.h"

namespace motley::text::regex {

// An escape that has (almost) the same meaning inside and outside of a class:
struct Escape {
  // One character, or
  std::optional<char32_t> character;
  // the characters of a type or a property.
  unicode::CodeSet set;
};

enum class EscapePlace : std::uint8_t { in_class, outside };

// Reads what follows a backslash.
Result<Escape> read_escape(PatternCursor& pattern, EscapePlace place);

// A property that the tables are known to have.
unicode::CodeSet known_property(std::string_view name);

}  // namespace motley::text::regex
