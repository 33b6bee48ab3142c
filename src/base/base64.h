#pragma once

#include <string>
#include <string_view>

namespace motley {

// Appends the bytes as base64 (RFC 4648, with padding).
void append_base64(std::string& text, std::string_view bytes);

}  // namespace motley
