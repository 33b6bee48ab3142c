#pragma once

#include <string_view>

namespace motley::server {

// A page for chats with the base and adapters side by side (playground.html). Self-contained: it
// loads nothing from other servers.
std::string_view playground_page();

}  // namespace motley::server
