#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace motley {

// Parses a SIZE of the command line: bytes, or a number with K, M, G or T, also written KiB or KB
// and so on (all powers of 1024), e.g. "24G", "1.5GiB". The result is a whole number of bytes, at
// most 2^63 - 1.
Result<std::uint64_t> parse_size(std::string_view text);

// "512 B", "4.0 KiB", "57.2 GiB"
std::string format_bytes(std::uint64_t bytes);

// "830 us", "12.4 ms", "3.21 s", "2 min 05 s"
std::string format_seconds(double seconds);

}  // namespace motley
