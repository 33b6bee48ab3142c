#pragma once

#include <set>
#include <string>

#include "text/jinja/syntax/syntax.h"

namespace motley::text::jinja {

// The names that a block reads before it assigns to them, including loops and macros in it: `loop`,
// `caller` and so on only exist where they are used.
std::set<std::string> undeclared(const Block& block, std::set<std::string> names);

}  // namespace motley::text::jinja
