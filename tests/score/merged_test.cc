// An adapter equals the weights it would make if it were merged into the base.

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "lora/files/load.h"
#include "score/golden_model.h"
#include "score/merged_weights.h"

namespace motley::score_tests {
namespace {

using Parts = std::vector<lora::ScaledAdapter>;

class Merged : public testing::TestWithParam<Parts> {};

TEST_P(Merged, WeightsSayWhatTheAdaptersSay) {
  GoldenModel golden("qwen3_moe", {});
  std::vector<lora::Adapter> adapters;
  for (const lora::ScaledAdapter& part : GetParam())
    adapters.push_back(
        lora::load_adapter(golden.folder() / "adapters" / part.name, {}, golden.model().base_view())
            .value());
  std::vector<ScaledFactors> factors;
  for (std::size_t i = 0; i < adapters.size(); ++i)
    factors.push_back({.adapter = &adapters[i], .scale = GetParam()[i].scale});
  const auto merged = load_merged(golden.folder(), factors, golden.device());
  const auto merged_runner =
      runner::Runner::create(*merged, golden.device(),
                             {.max_rows = 64, .max_sequences = 8, .max_tokens = 64, .pages = 64})
          .value();

  const std::vector<runner::ScoreLine> lines = golden.lines_of(cases_of(golden.golden()).front());
  const auto adapted = golden.score(lines, std::vector(lines.size(), golden.mix(GetParam())));
  const auto plain =
      runner::score(*merged_runner, lines, std::vector<lora::Mix>(lines.size()), {.top = 5})
          .value();
  for (std::size_t i = 0; i < lines.size(); ++i) {
    for (std::size_t t = 1; t < lines[i].tokens.size(); ++t)
      EXPECT_NEAR(adapted[i].token_logprobs[t], plain[i].token_logprobs[t], 1e-4)
          << "line " << i << ", token " << t;
  }
}

INSTANTIATE_TEST_SUITE_P(Mixes, Merged,
                         testing::Values(Parts{{.name = "attention"}}, Parts{{.name = "experts"}},
                                         Parts{{.name = "all_linear"}},
                                         Parts{{.name = "shared_outer_tinker"}},
                                         Parts{{.name = "experts", .scale = -0.7F},
                                               {.name = "attention", .scale = 0.4F}}));

}  // namespace
}  // namespace motley::score_tests
