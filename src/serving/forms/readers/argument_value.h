#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "serving/forms/tool_schemas.h"

namespace motley::serving {

// Converts an unquoted value of a model to JSON text, by the types that its schema allows (nothing:
// the parameter is not declared). If strings are allowed it is a string, exactly as given.
// Otherwise it is read as JSON or as Python's literals, if the schema allows the type. A value of
// no allowed type is not changed: it stays the JSON it is, or becomes a string.
std::string argument_json(std::string_view text, const std::optional<JsonTypes>& types);

}  // namespace motley::serving
