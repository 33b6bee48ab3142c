#pragma once

#include <cstddef>
#include <string>

namespace motley::cli {

// "12.40"
std::string decimals(double number, int places);

// Padded with leading spaces to this width.
std::string padded(std::string text, std::size_t width);

}  // namespace motley::cli
