#pragma once

#include <cstddef>
#include <string>

namespace motley::cli {

// "12.40"
std::string decimals(double number, int places);

// With spaces in front, so that it is at least so wide.
std::string padded(std::string text, std::size_t width);

}  // namespace motley::cli
