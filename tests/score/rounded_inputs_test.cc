// Checkpoints with quantised activations, against an emulation of their rounding in float64: the
// base, and adapters, whose deltas are of the unrounded activations. On the device that the program
// names.

#include "score/rounded_inputs.h"

#include <cmath>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "score/golden_model.h"

namespace motley::score_tests {
namespace {

std::map<std::string, double> mean_differences(const GoldenModel::Options& options,
                                               const std::string& model) {
  GoldenModel golden(model, options);
  return mean_differences(golden);
}

constexpr bool on_gpu = std::string_view(MOTLEY_SCORE_DEVICE) == "cuda";

// On the device, with activations as the checkpoint says.
GoldenModel::Options rounding(GoldenModel::Options options = {}) {
  if (on_gpu) options.device = {.kind = tensor::DeviceChoice::Kind::cuda};
  options.exact_inputs = false;
  return options;
}

class RoundedInputs : public testing::TestWithParam<std::string> {};

TEST_P(RoundedInputs, EqualTheEmulationInTheMean) {
  const auto means = mean_differences(rounding(), GetParam());
  EXPECT_EQ(means.size(), 3U);
  EXPECT_TRUE(means.contains("null"));
  for (const auto& [adapter, mean] : means)
    EXPECT_LE(mean, rounded_tolerance_of(GetParam())) << GetParam() << ", " << adapter;
}

TEST_P(RoundedInputs, AreNotWhatExactInputsSay) {
  GoldenModel::Options options = rounding();
  options.exact_inputs = true;
  for (const auto& [adapter, mean] : mean_differences(options, GetParam()))
    EXPECT_GT(mean, rounded_tolerance_of(GetParam())) << GetParam() << ", " << adapter;
}

// What bf16 costs where a device's products take inputs rounded to bf16, beside what it costs where
// they take codes: that is one more rounding beside those of the activations themselves.
TEST_P(RoundedInputs, CostAsMuchInBf16AsOnACpu) {
  const auto cpu = mean_differences({.exact = false, .exact_inputs = false}, GetParam());
  for (const auto& [adapter, mean] : mean_differences(rounding({.exact = false}), GetParam()))
    EXPECT_LE(mean, 1.5 * cpu.at(adapter) + rounded_tolerance_of(GetParam()))
        << GetParam() << ", " << adapter << ", on the CPU " << cpu.at(adapter);
}

// A row is rounded by itself: neither its neighbours, nor how a prompt is cut into steps, nor the
// number of threads, nor what runs together changes a bit.
TEST_P(RoundedInputs, HaveTheSameBitsInAnyBatch) {
  for (const bool exact : {true, false}) {
    std::vector<std::vector<runner::ScoreResult>> runs;
    for (GoldenModel::Options options :
         {GoldenModel::Options{}, GoldenModel::Options{.threads = 3, .max_rows = 7},
          GoldenModel::Options{.threads = 1, .max_rows = 1, .fusion = false}}) {
      options.exact = exact;
      options.batch_invariant = on_gpu;
      GoldenModel golden(GetParam(), rounding(options));
      const std::vector<runner::ScoreLine> lines = rounded_lines_of(golden);
      runs.push_back(golden.score(lines, mixes_of(golden, lines)));
    }
    for (std::size_t run = 1; run < runs.size(); ++run) {
      for (std::size_t i = 0; i < runs[0].size(); ++i) {
        EXPECT_EQ(runs[run][i].token_logprobs, runs[0][i].token_logprobs)
            << "exact " << exact << ", run " << run << ", line " << i;
        EXPECT_EQ(runs[run][i].top_logprobs, runs[0][i].top_logprobs)
            << "exact " << exact << ", run " << run << ", line " << i;
      }
    }
  }
}

// An adapter beside the base changes no bit of it, and one in every row has the bits that it has
// beside others.
TEST_P(RoundedInputs, AreOfTheirOwnRowBesideAdapters) {
  for (const bool exact : {true, false}) {
    GoldenModel golden(GetParam(), rounding({.exact = exact}));
    const std::vector<runner::ScoreLine> lines = rounded_lines_of(golden);
    const std::vector<lora::Mix> mixes = mixes_of(golden, lines);
    const auto mixed = golden.score(lines, mixes);
    const auto base = golden.score(lines, std::vector<lora::Mix>(lines.size()));
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (lines[i].adapters.empty()) {
        EXPECT_EQ(mixed[i].token_logprobs, base[i].token_logprobs)
            << "exact " << exact << ", line " << i;
      } else {
        EXPECT_NE(mixed[i].token_logprobs, base[i].token_logprobs)
            << "exact " << exact << ", line " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, RoundedInputs, testing::ValuesIn(models_with_rounded_inputs()),
                         [](const auto& model) { return model.param; });

}  // namespace
}  // namespace motley::score_tests
