#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/options/arguments/arguments.h"
#include "lora/files/random_adapter.h"
#include "model/model.h"
#include "serving/load_model.h"

namespace motley::cli {

// Options for a model of a released shape with random weights, and for its random adapters.
struct RandomModelSettings {
  std::string shape;
  std::optional<std::int64_t> layers;
  model::RandomWeights::Experts experts = model::RandomWeights::Experts::bf16;
  std::vector<int> ranks = {16};  // adapter i has rank i modulo their number
  bool shared_outer = false;

  std::string_view format() const;  // of experts
  lora::RandomAdapter adapter(std::size_t number) const;
};

// The options that set them, --shape first.
std::vector<OptionSpec> random_model_option_specs();

Result<RandomModelSettings> read_random_model_settings(const Arguments& arguments);

struct RandomModel {
  std::unique_ptr<model::Model> model;
  std::string description;
};

// Fails before creating weights that do not fit in the device's memory.
Result<RandomModel> make_random_model(const RandomModelSettings& settings,
                                      const serving::ComputeSettings& compute,
                                      tensor::Device& device, const serving::ModelRank& rank = {});

}  // namespace motley::cli
