#pragma once

#include <vector>

#include "base/json/json.h"

namespace motley::grammar::schema {

// Which written definitions have a finite value, where #/$defs/dI names the definition at index I:
// a list whose nodes all require another node has none. Null is a definition without any value.
std::vector<bool> have_an_end(const std::vector<const json::Value*>& definitions);

}  // namespace motley::grammar::schema
