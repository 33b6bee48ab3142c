#pragma once

#include <optional>
#include <string>

#include "base/json/json.h"

namespace motley::server {

// The text of a message's content, which is text, or parts of type text or refusal, joined. Nothing
// where a part is something else; content that is not there is empty.
std::optional<std::string> content_text(const json::Value* content);

}  // namespace motley::server
