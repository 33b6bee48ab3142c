#pragma once

#include <optional>
#include <string_view>

#include "text/unicode/code_set.h"

namespace motley::text::unicode {

// The characters of a category, a script or a property by its long or short name, Unicode 16. Case,
// blanks, hyphens and underscores are ignored. Two further names denote POSIX brackets that differ
// from the property: "[punct]" and "[word]".
std::optional<CodeSet> property(std::string_view name);

}  // namespace motley::text::unicode
