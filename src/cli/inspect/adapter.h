#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "base/result.h"
#include "cli/inspect/effect.h"
#include "cli/inspect/facts.h"
#include "cli/inspect/model.h"
#include "cli/options/folders/adapter_base.h"
#include "tensor/safetensors/checkpoint.h"

namespace motley::cli {

// A base that adapters are checked against.
struct InspectedBase {
  std::filesystem::path folder;
  LoadedModel loaded;
  ServedBase names;
  std::optional<Result<std::unique_ptr<AdapterTrial>>> trial = {};  // nothing: not asked for
};

// Findings from an adapter's config and names; with a base, also its effect on that model.
Result<Findings> inspect_adapter(const std::filesystem::path& folder,
                                 const tensor::Checkpoint& checkpoint,
                                 const std::optional<InspectedBase>& base);

}  // namespace motley::cli
