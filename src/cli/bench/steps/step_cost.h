#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lora/files/random_adapter.h"
#include "model/model.h"

namespace motley::cli {

// Steps of equal sequences: each adds `tokens` to `length` earlier ones.
struct StepShape {
  std::int64_t sequences = 1;
  std::int64_t tokens = 1;
  std::int64_t length = 0;
  int adapters = 0;  // sequence i uses adapter i modulo their number

  std::int64_t rows() const { return sequences * tokens; }
};

// The weights that the rows of a step read, summed over layers.
struct Touched {
  double experts = 0;                   // distinct ones per layer
  std::vector<double> adapter_experts;  // by adapter: those that its own rows chose
};

// The minimum cost of a step: one read of weights, factors, keys and values, and the products with
// them.
struct StepCost {
  double bytes = 0;
  double operations = 0;
};

// The cost of an adapter in use.
struct AdapterNumbers {
  lora::FactorNumbers numbers;
  double bytes_each = 2;
};

StepCost step_cost(const model::Model& model, const StepShape& shape, const Touched& touched,
                   std::span<const AdapterNumbers> adapters);

// The expected number of distinct experts of this many rows in all layers, with uniform routing.
double expected_experts(const model::Config& config, std::int64_t rows);

// The bytes of all weights on the model's device.
std::uint64_t weight_bytes(const model::Config& config, model::RandomWeights::Experts experts);

}  // namespace motley::cli
