#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lora/files/random_adapter.h"
#include "model/model.h"

namespace motley::cli {

// Steps of equal sequences: each adds `tokens` to `length` that are there.
struct StepShape {
  std::int64_t sequences = 1;
  std::int64_t tokens = 1;
  std::int64_t length = 0;
  int adapters = 0;  // sequence i uses number i modulo these

  std::int64_t rows() const { return sequences * tokens; }
};

// Which weights the rows of a step met, added up over layers.
struct Touched {
  double experts = 0;                   // different ones of a layer
  std::vector<double> adapter_experts;  // for each adapter, those that its own rows met
};

// What a step can't do without: reads of weights, factors, keys and values, each once; products
// with them.
struct StepCost {
  double bytes = 0;
  double operations = 0;
};

// What an adapter in use costs.
struct AdapterNumbers {
  lora::FactorNumbers numbers;
  double bytes_each = 2;
};

StepCost step_cost(const model::Model& model, const StepShape& shape, const Touched& touched,
                   std::span<const AdapterNumbers> adapters);

// Different experts that so many rows meet in all layers, if they choose evenly.
double expected_experts(const model::Config& config, std::int64_t rows);

// Bytes of all weights on the model's device.
std::uint64_t weight_bytes(const model::Config& config, model::RandomWeights::Experts experts);

}  // namespace motley::cli
