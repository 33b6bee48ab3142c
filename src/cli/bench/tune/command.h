#pragma once

#include <string>
#include <vector>

#include "cli/command.h"
#include "kernels/tuning/tuning.h"

namespace motley::cli {

// The options of --tune only, itself included.
std::vector<OptionSpec> tune_option_specs();

// motley bench MODEL|--shape NAME --tune --output F: measures a GPU's kernels on the model's
// products, and writes the thresholds that follow.
Result<void> run_bench_tune(const Arguments& arguments, Output output);

// A line for each threshold of a measurement: what is chosen, its time, and the fastest other one.
std::string threshold_lines(const std::vector<kernels::TunedRow>& rows,
                            const kernels::MeasuredTimes& times);

}  // namespace motley::cli
