#pragma once

#include <string_view>

namespace motley::engine {

// What a name may consist of, for error messages.
inline constexpr std::string_view adapter_name_rule =
    "1 to 200 letters, digits, '.', '_', '/', '-', '@' or ':'";
bool is_adapter_name(std::string_view name);

}  // namespace motley::engine
