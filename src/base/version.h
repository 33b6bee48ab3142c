#pragma once

#include <string_view>

namespace motley {

// "1.2.3", from the project's own declaration in CMakeLists.txt.
std::string_view version();

}  // namespace motley
