// A rank of a whole model on GPUs that fails, or stays away, in the middle of a step.

#include <chrono>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "gpu/ranks_models.h"
#include "score/failing_rank.h"
#include "score/sharded_scores.h"

namespace motley::gpu_tests {
namespace {

using namespace score_tests;  // NOLINT(google-build-using-namespace): the tests' model and cases
using testing::HasSubstr;

class FaultsOnGpus : public testing::Test {
 protected:
  static int ranks() { return ranks_over() == dist::RanksOver::nccl ? 2 : 3; }
  // The error of a step in whose middle a rank has a fault.
  std::string error_of(int faulty, FailingRank::Fault fault, Duration max_wait) {
    std::vector<std::unique_ptr<FailingRank>> made;
    GoldenModel::Options options = on_gpus(ranks());
    options.max_wait = max_wait;
    options.wrap = [&](dist::Communicator& ranks) {
      const int sums = ranks.rank() == faulty ? 3 : std::numeric_limits<int>::max();
      made.push_back(std::make_unique<FailingRank>(ranks, sums, fault));
      return made.back().get();
    };
    GoldenModel golden("qwen3_moe", options);
    const auto lines = golden.lines_of(cases_of(golden.golden()).front());
    const std::vector<lora::Mix> mixes(lines.size());
    std::string message;
    for (int step = 0; step < 2; ++step) {
      const auto result = runner::score(golden.runner(), lines, mixes, {});
      if (result.ok()) {
        ADD_FAILURE() << "the step has no error";
        continue;
      }
      if (step == 0) message = result.error().message();
      EXPECT_EQ(result.error().message(), message);
    }
    return message;
  }
};

TEST_F(FaultsOnGpus, ARankThatFailsInAStepEndsItWithItsLine) {
  for (const int faulty : {0, ranks() - 1})
    EXPECT_EQ(error_of(faulty, FailingRank::Fault::fails, std::chrono::seconds(60)),
              cat("the device is gone (rank ", faulty, ")"));
}

// Rank 0 would have numbers to read.
TEST_F(FaultsOnGpus, ARankThatStaysAwayInAStepIsNamed) {
  for (int faulty = 1; faulty < ranks(); ++faulty)
    EXPECT_THAT(error_of(faulty, FailingRank::Fault::stays_away, std::chrono::seconds(1)),
                HasSubstr(cat("rank ", faulty, " did not come to")));
}

}  // namespace
}  // namespace motley::gpu_tests
