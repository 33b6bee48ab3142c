#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "base/result.h"
#include "dist/communicator.h"
#include "model/model.h"
#include "serving/engine_settings.h"
#include "tensor/device/device.h"

namespace motley::serving {

// The tuning's name for logs and reports; null: the built-in thresholds.
std::string tuning_name(const kernels::Tuning* tuning);

// Warns in one line if the tuning is for another card or for other shapes than the model's.
void check_tuning_suits(const model::Model& model, const tensor::Device& device);

// The choice of --compute auto: on a CPU without bf16 products float32 is no slower.
bool likes_float32(const tensor::Device& device);

// Of several ranks, which one a model is for.
struct ModelRank {
  dist::Communicator* ranks = nullptr;  // null: the only one
  // The open files of rank 0's model, on other ranks.
  std::shared_ptr<const tensor::Checkpoint> checkpoint = {};
};

// Loads on a device from open_device() (devices.h), showing progress.
Result<std::unique_ptr<model::Model>> load_model(const std::filesystem::path& folder,
                                                 const ComputeSettings& settings,
                                                 tensor::Device& device,
                                                 const ModelRank& rank = {});

}  // namespace motley::serving
