#pragma once

#include "cli/command.h"

namespace motley::cli {

// Whether the options ask for a load, rather than for steps.
bool asks_for_load(const Arguments& arguments);

// The options of a load alone.
std::vector<OptionSpec> load_option_specs();

// motley bench MODEL, --shape or --url: requests to an engine of our own or to a server.
Result<void> run_bench_load(const Arguments& arguments, Output output);

}  // namespace motley::cli
