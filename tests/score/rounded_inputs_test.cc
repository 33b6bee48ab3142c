// Checkpoints with quantised activations, against an emulation of their rounding in float64: the
// base, and adapters, whose deltas are of the unrounded activations. On the device that the program
// names.

#include <cmath>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "base/json/json.h"
#include "score/golden_model.h"

namespace motley::score_tests {
namespace {

const json::Value* rounded_inputs(const json::Value& golden) {
  return golden.if_object()->find("rounded_inputs");
}

std::vector<std::string> models_with_rounded_inputs() {
  std::vector<std::string> names;
  for (const std::string& name : golden_models()) {
    if (rounded_inputs(read_golden(name)) != nullptr) names.push_back(name);
  }
  return names;
}

std::vector<runner::ScoreLine> lines_of(const GoldenModel& golden) {
  return golden.read_lines(*at(*rounded_inputs(golden.golden()), "file").if_string());
}

std::vector<lora::Mix> mixes_of(GoldenModel& golden, const std::vector<runner::ScoreLine>& lines) {
  std::vector<lora::Mix> mixes;
  for (const runner::ScoreLine& line : lines) mixes.push_back(golden.mix(line.adapters));
  return mixes;
}

// The mean difference of a token's log-probability from its reference, for the base and for each
// adapter. A number that is NaN is far from everything.
std::map<std::string, double> mean_differences(const GoldenModel::Options& options,
                                               const std::string& model) {
  GoldenModel golden(model, options);
  const std::vector<runner::ScoreLine> lines = lines_of(golden);
  const auto results = golden.score(lines, mixes_of(golden, lines));
  std::map<std::string, double> sums;
  std::map<std::string, int> counts;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string adapter = json::write(lines[i].adapter_field);
    for (std::size_t t = 1; t < lines[i].tokens.size(); ++t) {
      const double apart =
          std::abs(double{results[i].token_logprobs[t]} - double{(*lines[i].reference)[t]});
      sums[adapter] += std::isnan(apart) ? INFINITY : apart;
      ++counts[adapter];
    }
  }
  for (auto& [adapter, sum] : sums) sum /= counts[adapter];
  return sums;
}

constexpr bool on_gpu = std::string_view(MOTLEY_SCORE_DEVICE) == "cuda";

// On the device, with activations as the checkpoint says.
GoldenModel::Options rounding(GoldenModel::Options options = {}) {
  if (on_gpu) options.device = {.kind = tensor::DeviceChoice::Kind::cuda};
  options.exact_inputs = false;
  return options;
}

double tolerance_of(const std::string& model) {
  const json::Value golden = read_golden(model);
  return at(*rounded_inputs(golden), "tolerance").as_number("tolerance").value();
}

class RoundedInputs : public testing::TestWithParam<std::string> {};

TEST_P(RoundedInputs, EqualTheEmulationInTheMean) {
  const auto means = mean_differences(rounding(), GetParam());
  EXPECT_EQ(means.size(), 3U);
  EXPECT_TRUE(means.contains("null"));
  for (const auto& [adapter, mean] : means)
    EXPECT_LE(mean, tolerance_of(GetParam())) << GetParam() << ", " << adapter;
}

TEST_P(RoundedInputs, AreNotWhatExactInputsSay) {
  GoldenModel::Options options = rounding();
  options.exact_inputs = true;
  for (const auto& [adapter, mean] : mean_differences(options, GetParam()))
    EXPECT_GT(mean, tolerance_of(GetParam())) << GetParam() << ", " << adapter;
}

// What bf16 costs where a device's products take inputs rounded to bf16, beside what it costs where
// they take codes: that is one more rounding beside those of the activations themselves.
TEST_P(RoundedInputs, CostAsMuchInBf16AsOnACpu) {
  const auto cpu = mean_differences({.exact = false, .exact_inputs = false}, GetParam());
  for (const auto& [adapter, mean] : mean_differences(rounding({.exact = false}), GetParam()))
    EXPECT_LE(mean, 1.5 * cpu.at(adapter) + tolerance_of(GetParam()))
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
      const std::vector<runner::ScoreLine> lines = lines_of(golden);
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
    const std::vector<runner::ScoreLine> lines = lines_of(golden);
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
