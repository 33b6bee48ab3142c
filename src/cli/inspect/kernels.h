#pragma once

#include <filesystem>
#include <string>

#include "base/result.h"
#include "cli/options/compute_settings.h"

namespace motley::cli {

// What steps of the model launch on the device, as text: each line what ran together, the ops that
// it is made of, and on a GPU the kernels. Loads the model; the adapters are random ones.
Result<std::string> describe_kernels(const std::filesystem::path& folder,
                                     const ComputeSettings& settings);

}  // namespace motley::cli
