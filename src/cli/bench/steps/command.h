#pragma once

#include "cli/command.h"

namespace motley::cli {

// Times steps of a model of a released shape, with random weights, compared with the device's
// limits. Only the options of steps; those of compute_settings.h apply, too.
std::vector<OptionSpec> step_option_specs();

Result<void> run_bench_steps(const Arguments& arguments, Output output);

}  // namespace motley::cli
