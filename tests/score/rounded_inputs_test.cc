// Checkpoints with quantised activations, against an emulation of their rounding in float64: the
// base, and adapters, whose deltas are of the unrounded activations.

#include <cmath>
#include <map>
#include <string>
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

double tolerance_of(const std::string& model) {
  const json::Value golden = read_golden(model);
  return at(*rounded_inputs(golden), "tolerance").as_number("tolerance").value();
}

class RoundedInputs : public testing::TestWithParam<std::string> {};

TEST_P(RoundedInputs, EqualTheEmulationInTheMean) {
  const auto means = mean_differences({.exact_inputs = false}, GetParam());
  EXPECT_EQ(means.size(), 3U);
  EXPECT_TRUE(means.contains("null"));
  for (const auto& [adapter, mean] : means)
    EXPECT_LE(mean, tolerance_of(GetParam())) << GetParam() << ", " << adapter;
}

TEST_P(RoundedInputs, AreNotWhatExactInputsSay) {
  for (const auto& [adapter, mean] : mean_differences({}, GetParam()))
    EXPECT_GT(mean, tolerance_of(GetParam())) << GetParam() << ", " << adapter;
}

// A row is rounded by itself: neither its neighbours, nor how a prompt is cut into steps, nor the
// number of threads, nor what runs together changes a bit.
TEST_P(RoundedInputs, HaveTheSameBitsInAnyBatch) {
  std::vector<std::vector<runner::ScoreResult>> runs;
  for (const GoldenModel::Options& options :
       {GoldenModel::Options{.exact_inputs = false},
        GoldenModel::Options{.exact_inputs = false, .threads = 3, .max_rows = 7},
        GoldenModel::Options{
            .exact_inputs = false, .threads = 1, .max_rows = 1, .fusion = false}}) {
    GoldenModel golden(GetParam(), options);
    const std::vector<runner::ScoreLine> lines = lines_of(golden);
    runs.push_back(golden.score(lines, mixes_of(golden, lines)));
  }
  for (std::size_t run = 1; run < runs.size(); ++run) {
    for (std::size_t i = 0; i < runs[0].size(); ++i) {
      EXPECT_EQ(runs[run][i].token_logprobs, runs[0][i].token_logprobs) << "line " << i;
      EXPECT_EQ(runs[run][i].top_logprobs, runs[0][i].top_logprobs) << "line " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, RoundedInputs, testing::ValuesIn(models_with_rounded_inputs()),
                         [](const auto& model) { return model.param; });

}  // namespace
}  // namespace motley::score_tests
