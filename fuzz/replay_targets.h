#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace motley::fuzz {

using Target = int (*)(const std::uint8_t* data, std::size_t size);

// Null where no target has that name.
Target find_target(std::string_view name);

}  // namespace motley::fuzz
