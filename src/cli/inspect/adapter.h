#pragma once

#include <filesystem>
#include <optional>

#include "base/result.h"
#include "cli/inspect/facts.h"
#include "tensor/safetensors/checkpoint.h"

namespace motley::cli {

// Findings from an adapter's config and names; with a base, also its effect on that model.
Result<Findings> inspect_adapter(const std::filesystem::path& folder,
                                 const tensor::Checkpoint& checkpoint,
                                 const std::optional<std::filesystem::path>& base);

}  // namespace motley::cli
