#pragma once

#include <string_view>

#include "base/result.h"
#include "text/regex/syntax_tree.h"

namespace motley::text::regex {

// Reads a pattern in Oniguruma's syntax for Ruby. `where` is what messages call it.
Result<Node> parse(std::string_view pattern, std::string_view where);

}  // namespace motley::text::regex
