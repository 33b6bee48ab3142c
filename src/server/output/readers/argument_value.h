#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "server/output/tool_schemas.h"

namespace motley::server {

// A value that a model wrote without quotes as JSON text, by what its schema lets it be (nothing:
// the parameter is not declared). Where a string is allowed it is one, exactly as given. Otherwise
// it is what it says in JSON or in Python's words, if the schema allows that; what fits nowhere is
// not bent: it stays the JSON that it is, or becomes a string.
std::string argument_json(std::string_view text, const std::optional<JsonTypes>& types);

}  // namespace motley::server
