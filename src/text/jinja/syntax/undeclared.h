#pragma once

#include <set>
#include <string>

#include "text/jinja/syntax/syntax.h"

namespace motley::text::jinja {

// Which of the names a block reads before it assigns to them, loops and macros inside it included:
// `loop`, `caller` and their like exist only where they are asked for.
std::set<std::string> undeclared(const Block& block, std::set<std::string> names);

}  // namespace motley::text::jinja
