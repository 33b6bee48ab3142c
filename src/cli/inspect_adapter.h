#pragma once

#include <filesystem>
#include <optional>

#include "base/result.h"
#include "cli/inspect_facts.h"
#include "tensor/checkpoint.h"

namespace motley::cli {

// What an adapter's config and names say; with a base, what it does to that model.
Result<Findings> inspect_adapter(const std::filesystem::path& folder,
                                 const tensor::Checkpoint& checkpoint,
                                 const std::optional<std::filesystem::path>& base);

}  // namespace motley::cli
