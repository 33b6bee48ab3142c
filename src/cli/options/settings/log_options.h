#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/options/arguments/arguments.h"

namespace motley::cli {

// The options of all commands that log.
std::vector<OptionSpec> log_option_specs();

// Before a command's words are parsed: so that an error in them is JSON where they ask for it.
void prepare_log(std::span<const std::string> words);

// Configures the log by these options.
Result<void> configure_log(const Arguments& arguments);

// One line that names the options of other servers that have no effect, and why.
void log_ignored(const Arguments& arguments);

}  // namespace motley::cli
