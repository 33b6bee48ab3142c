#pragma once

#include <string>

namespace motley::cli {

// What works, as tables in Markdown under a heading each: experts of each family in each format on
// each device, asked of the backends that this build has, and kinds of adapters.
std::string supported_tables();

}  // namespace motley::cli
