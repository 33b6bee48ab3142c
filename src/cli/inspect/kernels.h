#pragma once

#include <filesystem>
#include <string>

#include "base/result.h"
#include "serving/engine_settings.h"

namespace motley::cli {

// The launches of the model's steps on the device, as text: for each launch its ops, and on a GPU
// its kernels. Loads the model; adapters are random.
Result<std::string> describe_kernels(const std::filesystem::path& folder,
                                     const serving::ComputeSettings& settings);

}  // namespace motley::cli
