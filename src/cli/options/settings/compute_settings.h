#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/options/arguments/arguments.h"
#include "serving/engine_settings.h"

namespace motley::cli {

// The options of all commands that run a model, which say where and how it computes.
std::vector<OptionSpec> compute_option_specs();

Result<serving::ComputeSettings> read_compute_settings(const Arguments& arguments);

// Refuses several ranks for work that one rank does.
Result<void> require_one_rank(const serving::ComputeSettings& settings, std::string_view work);

// The same for commands that run one engine.
Result<void> require_one_replica(const serving::ComputeSettings& settings, std::string_view work);

}  // namespace motley::cli
