#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "cli/options/arguments.h"
#include "dist/ranks_over.h"
#include "model/model.h"
#include "tensor/device/device.h"

namespace motley::cli {

// Where and how a model computes, as set by the options of all commands that run one.
struct ComputeSettings {
  tensor::DeviceChoice device = {};
  std::optional<bool> exact = {};  // float32 everywhere; nothing: chosen by device
  std::optional<std::string> experts_backend = {};
  std::optional<DType> factors = {};  // of adapters; nothing: as activations
  bool kv_codes = false;              // keys and values are stored in FP8
  bool batch_invariant = false;
  bool graphs = true;
  bool fusion = true;
  bool exact_inputs = false;   // activations stay unquantised
  bool copy_weights = false;   // files are read into memory, not mapped
  int ranks = 1;               // --tp: that compute the model together
  int expert_groups = 1;       // --ep: of ranks, over which experts are dealt
  int replicas = 1;            // --dp: engines, each of as many ranks
  std::vector<int> gpus = {};  // --devices: of each rank; empty: the first ones, or the CPU
  dist::RanksOver ranks_over = dist::RanksOver::automatic;
  // Thresholds of a GPU's kernels; null: the built-in ones alone.
  std::shared_ptr<const kernels::Tuning> tuning = {};
};

// The options that set them.
std::vector<OptionSpec> compute_option_specs();

Result<ComputeSettings> read_compute_settings(const Arguments& arguments);

// The tuning's name for logs and reports; null: the built-in thresholds.
std::string tuning_name(const kernels::Tuning* tuning);

// Warns in one line if the tuning is for another card or for other shapes than the model's.
void check_tuning_suits(const model::Model& model, const tensor::Device& device);

// The choice of --compute auto: on a CPU without bf16 products float32 is no slower.
bool likes_float32(const tensor::Device& device);

// Refuses several ranks for work that one rank does.
Result<void> require_one_rank(const ComputeSettings& settings, std::string_view work);

// The same for commands that run one engine.
Result<void> require_one_replica(const ComputeSettings& settings, std::string_view work);

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

}  // namespace motley::cli
