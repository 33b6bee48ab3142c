#pragma once

#include <string>

namespace motley {

// 32 hexadecimal digits, different for each call.
std::string random_id();

}  // namespace motley
