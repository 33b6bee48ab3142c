#pragma once

#include <vector>

#include "base/result.h"
#include "cli/options/arguments.h"

namespace motley::cli {

// The options of all commands that log.
std::vector<OptionSpec> log_option_specs();

// Configures the log by these options.
Result<void> configure_log(const Arguments& arguments);

}  // namespace motley::cli
