#pragma once

#include <optional>
#include <string>

#include "base/json/json.h"

namespace motley::serving {

// The text of a message's content: a string, or the joined parts of type text or refusal. Nothing
// if there is another part; absent content is empty.
std::optional<std::string> content_text(const json::Value* content);

}  // namespace motley::serving
