// Whole models on several GPUs against one, over the goldens: every family, format and adapter.
// Where there are fewer GPUs ranks share them, in float32; what takes a GPU for each rank is in
// ranks_on_own_gpus_test.cc.

#include <chrono>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "gpu/ranks_models.h"
#include "score/golden_model.h"
#include "score/rounded_inputs.h"
#include "score/sharded_scores.h"

namespace motley::gpu_tests {
namespace {

using namespace score_tests;  // NOLINT(google-build-using-namespace): the tests' model and cases

class RanksOnGpus : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Goldens, RanksOnGpus, testing::ValuesIn(plain_models()),
                         [](const auto& model) { return model.param; });

TEST_P(RanksOnGpus, EveryCaseIsAsOnOneGpu) {
  GoldenModel one(GetParam(), on_gpus(1));
  const std::vector<Scored> wanted = score_all(one);
  for (const Layout& layout : layouts_of(one, {{2}, {3}, {4}})) {
    SCOPED_TRACE(cat(layout.ranks, " ranks"));
    GoldenModel several(GetParam(), on_gpus(layout));
    expect_close(score_all(several), wanted, layout);
    expect_greedy_as_recorded(several);
  }
}

TEST_P(RanksOnGpus, ARunRepeatsBitForBit) { expect_repeats(GetParam(), true); }

// The patterns of sums over ranks launch what their ops do.
TEST_P(RanksOnGpus, FusedSumsHaveTheBitsOfTheirOps) {
  GoldenModel::Options options = on_gpus(2);
  GoldenModel fused(GetParam(), options);
  options.fusion = false;
  GoldenModel plain(GetParam(), options);
  expect_close(score_all(fused), score_all(plain), {2});
}

class RanksOnGpusFormats : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Goldens, RanksOnGpusFormats, testing::ValuesIn(quantised_models()),
                         [](const auto& model) { return model.param; });

TEST_P(RanksOnGpusFormats, EveryCaseIsAsOnOneGpu) {
  GoldenModel one(GetParam(), on_gpus(1));
  const std::vector<Scored> wanted = score_all(one);
  for (const Layout& layout : layouts_of(one, {{2}, {3}})) {
    SCOPED_TRACE(cat(layout.ranks, " ranks"));
    GoldenModel several(GetParam(), on_gpus(layout));
    expect_close(score_all(several), wanted, layout);
  }
}

// Activations that are quantised where ranks cut their rows.
class RanksOnGpusRounded : public testing::TestWithParam<std::string> {
 protected:
  static GoldenModel::Options rounding(GoldenModel::Options options) {
    options.exact_inputs = false;
    return options;
  }
};
INSTANTIATE_TEST_SUITE_P(Goldens, RanksOnGpusRounded,
                         testing::ValuesIn(models_with_rounded_inputs()),
                         [](const auto& model) { return model.param; });

TEST_P(RanksOnGpusRounded, EqualTheEmulationInTheMean) {
  GoldenModel one(GetParam(), rounding(on_gpus(1)));
  const std::vector<Scored> wanted = score_all(one);
  for (const Layout& layout : layouts_of(one, {{2}, {3}, {4}})) {
    SCOPED_TRACE(cat(layout.ranks, " ranks, ", layout.groups, " groups"));
    GoldenModel several(GetParam(), rounding(on_gpus(layout)));
    EXPECT_LT(mean_difference(score_all(several), wanted), rounded_tolerance_of(GetParam()));
    for (const auto& [adapter, mean] : mean_differences(several))
      EXPECT_LE(mean, rounded_tolerance_of(GetParam())) << adapter;
  }
}

}  // namespace
}  // namespace motley::gpu_tests
