// The engine over whole models on a GPU: what was recorded, the same bits as alone, and steps that
// take nothing once they are warm.

#include <string>

#include <gtest/gtest.h>

#include "engine/golden_answers.h"
#include "engine/routed_answers.h"
#include "engine/steady_steps.h"
#include "support/allocations.h"

namespace motley::engine_tests {
namespace {

using score_tests::GoldenModel;

GoldenModel::Options on_gpu(bool exact, bool batch_invariant) {
  return {.exact = exact,
          .pages = 512,
          .device = {.kind = tensor::DeviceChoice::Kind::cuda},
          .batch_invariant = batch_invariant};
}

class GpuEngine : public testing::TestWithParam<std::string> {};

// Sums are in another order than the reference's, as in score_test.cc.
TEST_P(GpuEngine, AllAdaptersInOneBatchAreAsRecorded) {
  constexpr double tolerance = 1e-3;
  GoldenModel golden(GetParam(), on_gpu(true, false));
  GoldenEngine world(golden, {});
  world.load_adapters();
  expect_recorded_answers(world, golden, tolerance);
  EXPECT_GT(world.runner().graph_launches(), 0U);
  expect_all_given_back(world);
}

// In float32, where no router is as close to a tie as sums in another order move it. Of single
// tokens from graphs.
class GpuRoutedExperts : public testing::TestWithParam<std::string> {};

TEST_P(GpuRoutedExperts, OfAllAdaptersInOneBatchAreAsRecorded) {
  for (const bool warm : {false, true}) {
    GoldenModel golden(GetParam(), on_gpu(true, false));
    GoldenEngine world(golden, {.max_rows = 32, .warm = warm, .routed_experts = true});
    world.load_adapters();
    expect_recorded_experts(world, GetParam());
    EXPECT_GT(world.runner().graph_launches(), 0U);
    expect_all_given_back(world);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GpuRoutedExperts, testing::ValuesIn(models_with_routed_experts()),
                         [](const auto& model) { return model.param; });

// On little room, in the batch-invariant mode: tokens and bits as alone.
TEST_P(GpuEngine, NothingBesideChangesABitInTheBatchInvariantMode) {
  for (const bool exact : {true, false}) {
    SCOPED_TRACE(exact ? "float32" : "bf16");
    GoldenModel golden(GetParam(), on_gpu(exact, true));
    expect_same_bits_beside_others(
        golden,
        {.room = {.max_rows = 7, .max_sequences = 6, .pages = 8}, .requests = 8, .max_tokens = 30});
  }
}

// The same with keys and values in FP8.
class GpuEngineFp8Cache : public testing::TestWithParam<std::string> {};
TEST_P(GpuEngineFp8Cache, NothingBesideChangesABitInTheBatchInvariantMode) {
  for (const bool exact : {true, false}) {
    SCOPED_TRACE(exact ? "float32" : "bf16");
    GoldenModel::Options options = on_gpu(exact, true);
    options.kv_codes = true;
    GoldenModel golden(GetParam(), options);
    expect_same_bits_beside_others(
        golden,
        {.room = {.max_rows = 7, .max_sequences = 6, .pages = 8}, .requests = 8, .max_tokens = 30});
    expect_overflow_ends_alone(golden);
  }
}
INSTANTIATE_TEST_SUITE_P(Models, GpuEngineFp8Cache, testing::Values("qwen3_moe"),
                         [](const auto& model) { return model.param; });

// Keys and values that are not finite lie in pages that others get.
TEST(GpuEngineOverflow, AnAdapterThatOverflowsFailsAlone) {
  for (const bool exact : {true, false}) {
    SCOPED_TRACE(exact ? "float32" : "bf16");
    GoldenModel golden("qwen3_moe", on_gpu(exact, true));
    expect_overflow_ends_alone(golden);
  }
}

TEST_P(GpuEngine, WarmStepsOfEveryKindTakeNoMemory) {
  GoldenModel golden(GetParam(), on_gpu(false, false));
  golden.runner().warm_up().value();
  SteadySteps steps(golden);
  // Once to meet every adapter, and once more with all that steps of them need captured.
  steps.run();
  while (golden.runner().capture_ahead().value()) continue;
  steps.run();
  const std::int64_t heap = test::counted_allocations();
  const std::uint64_t device = golden.device().usage().allocations;
  const std::uint64_t pinned = golden.device().pinned_usage().allocations;
  const std::size_t graphs = golden.runner().graphs();
  steps.run();
  EXPECT_EQ(test::counted_allocations() - heap, 0);
  EXPECT_EQ(golden.device().usage().allocations - device, 0U);
  EXPECT_EQ(golden.device().pinned_usage().allocations - pinned, 0U);
  EXPECT_EQ(golden.runner().graphs(), graphs);
}

INSTANTIATE_TEST_SUITE_P(Models, GpuEngine, testing::ValuesIn(score_tests::golden_models()),
                         [](const auto& model) { return model.param; });

}  // namespace
}  // namespace motley::engine_tests
