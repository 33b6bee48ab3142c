#pragma once

#include <string_view>

#include "base/result.h"
#include "text/regex/syntax_tree.h"

namespace motley::text::regex {

// Parses a pattern in Oniguruma's Ruby syntax. `where` names it in messages.
Result<Node> parse(std::string_view pattern, std::string_view where);

}  // namespace motley::text::regex
