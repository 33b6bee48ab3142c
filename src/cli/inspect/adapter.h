#pragma once

#include <filesystem>
#include <optional>

#include "base/result.h"
#include "cli/inspect/facts.h"
#include "tensor/safetensors/checkpoint.h"

namespace motley::cli {

// What an adapter's config and names say; with a base, what it does to that model.
Result<Findings> inspect_adapter(const std::filesystem::path& folder,
                                 const tensor::Checkpoint& checkpoint,
                                 const std::optional<std::filesystem::path>& base);

}  // namespace motley::cli
