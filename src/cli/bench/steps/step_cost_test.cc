#include "cli/bench/steps/step_cost.h"

#include <gtest/gtest.h>

#include "model/config/shapes.h"
#include "tensor/device/cpu_device.h"

namespace motley::cli {
namespace {

StepCost cost_of(const model::Config& config) {
  tensor::CpuDevice device({.threads = 1});
  const auto model =
      model::Model::random(config, model::RandomWeights::Experts::bf16, device, {}).value();
  return step_cost(*model, {.sequences = 3, .tokens = 2}, {.experts = 5, .adapter_experts = {}},
                   {});
}

// A dense block beside experts costs what it costs alone; the experts stay as they are.
TEST(StepCosts, CountBlocksInsideOthers) {
  model::Config config = model::shape_config("tiny", {}).value();
  const StepCost experts = cost_of(config);
  config.dense_and_experts = true;
  const StepCost both = cost_of(config);
  const auto numbers =
      static_cast<double>(config.layers * 3 * config.hidden * config.dense_intermediate);
  EXPECT_EQ(both.bytes - experts.bytes, numbers * 2);
  EXPECT_EQ(both.operations - experts.operations, 2 * 6 * numbers);
  EXPECT_EQ(weight_bytes(config, model::RandomWeights::Experts::bf16) -
                weight_bytes(model::shape_config("tiny", {}).value(),
                             model::RandomWeights::Experts::bf16),
            static_cast<std::uint64_t>(numbers * 2));
}

}  // namespace
}  // namespace motley::cli
