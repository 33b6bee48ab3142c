#pragma once

#include <vector>

#include "base/json/json.h"

namespace motley::engine::schema {

// Of written definitions, where #/$defs/dI names the one at place I, those that have a value with
// an end: a list whose nodes all need another one has none. Null is a definition without any value.
std::vector<bool> have_an_end(const std::vector<const json::Value*>& definitions);

}  // namespace motley::engine::schema
