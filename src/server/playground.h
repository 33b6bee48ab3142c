#pragma once

#include <string_view>

namespace motley::server {

// A page to talk to the base and to adapters side by side, from playground.html: whole in itself,
// it asks no server but this one.
std::string_view playground_page();

}  // namespace motley::server
