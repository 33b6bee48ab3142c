#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/options/arguments/arguments.h"
#include "serving/engine_settings.h"

namespace motley::cli {

// The value of
//   --adapter [NAME=]PATH[,pinned][,partial][,b-columns=rank-major|expert-major]
//             [,orientation=standard|swapped]
// Without NAME= the adapter has its folder's name. A path that holds '=' needs the name.
Result<serving::StartAdapter> parse_adapter_option(std::string_view text);

// All --adapter options and those of vLLM's --lora-modules, each of a name of its own and with its
// folder found (named_folder.h).
Result<std::vector<serving::StartAdapter>> read_adapter_options(const Arguments& arguments);

}  // namespace motley::cli
