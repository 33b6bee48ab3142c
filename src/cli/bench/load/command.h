#pragma once

#include "cli/command.h"

namespace motley::cli {

// Whether the options request a load, rather than steps.
bool asks_for_load(const Arguments& arguments);

// The options of loads only.
std::vector<OptionSpec> load_option_specs();

// motley bench MODEL, --shape or --url: requests to an engine in this process or to a server.
Result<void> run_bench_load(const Arguments& arguments, Output output);

}  // namespace motley::cli
