#pragma once

#include "cli/command.h"

namespace motley::cli {

// Steps of a model in the shape of a released one, with random weights, held
// against what the device can do at best.
// The options of steps alone; those of compute_settings.h are theirs too.
std::vector<OptionSpec> step_option_specs();

Result<void> run_bench_steps(const Arguments& arguments, Output output);

}  // namespace motley::cli
