#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "dist/ranks_over.h"
#include "engine/requests/request.h"
#include "kernels/tuning/tuning.h"
#include "lora/files/load.h"
#include "serving/memory_plan.h"
#include "tensor/device/device.h"

// What an engine is made of, as data. Options of the command line set it.
namespace motley::serving {

// Where and how a model computes.
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

// An adapter that is loaded at the start.
struct StartAdapter {
  std::string name;
  std::filesystem::path path = {};
  bool pinned = false;
  lora::LoadOptions load = {};
  bool optional = false;  // the start goes on without it if it can't be loaded
};

struct EngineSettings {
  std::vector<StartAdapter> adapters = {};
  ComputeSettings compute = {};
  MemorySettings memory = {};
  std::int64_t max_queue = 1024;  // requests that may wait
  std::int64_t max_adapters = 10'000;
  bool routed_experts = false;  // the experts of tokens are kept, for requests that ask
  int max_logprobs = engine::max_top_logprobs;  // alternatives to a token that may be asked for
};

}  // namespace motley::serving
