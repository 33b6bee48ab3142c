#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "cli/options/arguments.h"
#include "model/model.h"
#include "tensor/device/device.h"

namespace motley::cli {

// Where and how a model computes, as the options of all commands that run one say it.
struct ComputeSettings {
  tensor::DeviceChoice device = {};
  std::optional<bool> exact = {};  // float32 everywhere; none: as the device likes it
  std::optional<std::string> experts_backend = {};
  std::optional<DType> factors = {};  // what adapters' pages hold; none: as activations
  bool batch_invariant = false;
  bool graphs = true;
  bool fusion = true;
  bool copy_weights = false;  // files are read whole, not mapped
};

// The options that fill them.
std::vector<OptionSpec> compute_option_specs();

Result<ComputeSettings> read_compute_settings(const Arguments& arguments);

// Refuses settings that the device can't serve.
Result<std::unique_ptr<tensor::Device>> open_device(const ComputeSettings& settings);

// What --compute auto takes there: a CPU without products of bf16 is no slower with float32.
bool likes_float32(const tensor::Device& device);

// On a device that open_device() opened; shows how far it is.
Result<std::unique_ptr<model::Model>> load_model(const std::filesystem::path& folder,
                                                 const ComputeSettings& settings,
                                                 tensor::Device& device);

}  // namespace motley::cli
