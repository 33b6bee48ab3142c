#pragma once

#include <cstdint>

#include "lora/files/adapter.h"
#include "lora/site.h"

namespace motley::lora {

struct RandomAdapter {
  int rank = 16;
  // One A of gate and up, and one B of down, for all experts of a layer.
  bool shared_outer = false;
  std::uint64_t seed = 1;
};

// An adapter with random factors on attention's projections and on all routed experts, for
// measurements.
Adapter random_adapter(const BaseView& base, const RandomAdapter& wanted);

// The numbers of an adapter's factors that a step reads.
struct FactorNumbers {
  std::int64_t always = 0;       // by a row that uses the adapter
  std::int64_t each_expert = 0;  // by a row that chooses an expert of a layer
};
FactorNumbers factor_numbers(const Adapter& adapter);

}  // namespace motley::lora
