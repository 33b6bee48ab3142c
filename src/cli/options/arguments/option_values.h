#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace motley::cli {

Error wrong_option(std::string what, std::string_view option, std::string fix);

// An integer from `least` to `most`.
Result<std::int64_t> parse_number(std::string_view text, std::string_view option,
                                  std::int64_t least, std::int64_t most);

// The parts between commas.
std::vector<std::string_view> split_list(std::string_view text);

// "1,8,32", or "none".
Result<std::vector<std::int64_t>> parse_numbers(std::string_view text, std::string_view option,
                                                std::int64_t least, std::int64_t most);

}  // namespace motley::cli
