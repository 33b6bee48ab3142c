#pragma once

#include <vector>

#include "base/result.h"
#include "cli/options/arguments.h"

namespace motley::cli {

// The options of all commands that log.
std::vector<OptionSpec> log_option_specs();

// Configures the log by these options.
Result<void> configure_log(const Arguments& arguments);

// One line that names the options of other servers that have no effect, and why.
void log_ignored(const Arguments& arguments);

}  // namespace motley::cli
