#pragma once

#include <filesystem>
#include <memory>

#include "base/json/json.h"
#include "base/result.h"
#include "cli/inspect/facts.h"
#include "model/model.h"
#include "serving/engine_settings.h"
#include "tensor/device/device.h"

namespace motley::cli {

// A model loaded as by `motley score` on this machine, for inspection only.
struct LoadedModel {
  std::unique_ptr<tensor::Device> device;
  std::unique_ptr<model::Model> model;  // destroyed before its device
};

Result<LoadedModel> load_to_inspect(const std::filesystem::path& folder, bool kv_codes = false);

// `config` is the folder's config.json. The settings' tuning selects a GPU's kernels; with several
// ranks the findings say what each would hold.
Result<Findings> inspect_model(const std::filesystem::path& folder, const json::Value& config,
                               const serving::ComputeSettings& settings);

}  // namespace motley::cli
