#pragma once

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "base/json/json.h"
#include "score/golden_model.h"

// Checkpoints with quantised activations, and an emulation of their rounding in float64.
namespace motley::score_tests {

inline const json::Value* rounded_inputs(const json::Value& golden) {
  return golden.if_object()->find("rounded_inputs");
}

inline std::vector<std::string> models_with_rounded_inputs() {
  std::vector<std::string> names;
  for (const std::string& name : golden_models()) {
    if (rounded_inputs(read_golden(name)) != nullptr) names.push_back(name);
  }
  return names;
}

// Those of the emulation.
inline std::vector<runner::ScoreLine> rounded_lines_of(const GoldenModel& golden) {
  return golden.read_lines(*at(*rounded_inputs(golden.golden()), "file").if_string());
}

inline std::vector<lora::Mix> mixes_of(GoldenModel& golden,
                                       const std::vector<runner::ScoreLine>& lines) {
  std::vector<lora::Mix> mixes;
  for (const runner::ScoreLine& line : lines) mixes.push_back(golden.mix(line.adapters));
  return mixes;
}

// The mean difference of a token's log-probability from its reference, for the base and for each
// adapter. A number that is NaN is far from everything.
inline std::map<std::string, double> mean_differences(GoldenModel& golden) {
  const std::vector<runner::ScoreLine> lines = rounded_lines_of(golden);
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

inline double rounded_tolerance_of(const std::string& model) {
  const json::Value golden = read_golden(model);
  return at(*rounded_inputs(golden), "tolerance").as_number("tolerance").value();
}

}  // namespace motley::score_tests
