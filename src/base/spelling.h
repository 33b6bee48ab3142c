#pragma once

#include <optional>
#include <span>
#include <string_view>

namespace motley {

// The candidate that a mistyped word most likely means, if one is close.
std::optional<std::string_view> closest(std::string_view word,
                                        std::span<const std::string_view> candidates);

}  // namespace motley
