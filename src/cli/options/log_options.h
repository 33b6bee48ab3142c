#pragma once

#include <vector>

#include "base/result.h"
#include "cli/options/arguments.h"

namespace motley::cli {

// What all commands that log take.
std::vector<OptionSpec> log_option_specs();

// Makes the log what they say.
Result<void> configure_log(const Arguments& arguments);

}  // namespace motley::cli
