// Whole models on several GPUs in bf16. Kernels in bf16 take a GPU as their own, and so must not
// share one with ranks that wait: each rank needs a GPU. With fewer GPUs these tests fail.

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "gpu/ranks_models.h"
#include "score/failing_rank.h"
#include "score/golden_model.h"
#include "score/rounded_inputs.h"
#include "score/sharded_scores.h"

namespace motley::gpu_tests {
namespace {

using namespace score_tests;  // NOLINT(google-build-using-namespace): the tests' model and cases

bool has_gpu_for_each(int ranks) {
  const std::vector<int> gpus = gpus_of_ranks(ranks);
  return gpus.back() == ranks - 1;
}

template <int gpus>
class RanksOnOwnGpus : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    ASSERT_TRUE(has_gpu_for_each(gpus)) << "run it where there are " << gpus << " GPUs";
  }
};

using RanksOnTwoGpus = RanksOnOwnGpus<2>;
INSTANTIATE_TEST_SUITE_P(Goldens, RanksOnTwoGpus, testing::ValuesIn(plain_models()),
                         [](const auto& model) { return model.param; });
class RanksOnTwoGpusFormats : public RanksOnTwoGpus {};
INSTANTIATE_TEST_SUITE_P(Goldens, RanksOnTwoGpusFormats, testing::ValuesIn(quantised_models()),
                         [](const auto& model) { return model.param; });
// Activations that are quantised where ranks cut their rows.
class RanksOnTwoGpusRounded : public RanksOnTwoGpus {
 protected:
  static GoldenModel::Options rounding(GoldenModel::Options options) {
    options.exact_inputs = false;
    return options;
  }
};
INSTANTIATE_TEST_SUITE_P(Goldens, RanksOnTwoGpusRounded,
                         testing::ValuesIn(models_with_rounded_inputs()),
                         [](const auto& model) { return model.param; });
using RanksOnFourGpus = RanksOnOwnGpus<4>;
INSTANTIATE_TEST_SUITE_P(Goldens, RanksOnFourGpus, testing::ValuesIn(plain_models()),
                         [](const auto& model) { return model.param; });

TEST_P(RanksOnTwoGpus, ARunRepeatsBitForBit) { expect_repeats(GetParam(), false); }

// Each case's lines again and again, in steps of more rows than few_adapted_rows.
std::vector<Scored> score_many(GoldenModel& golden) {
  constexpr std::size_t sequences = 48;
  std::vector<Scored> all;
  for (const json::Value& each : cases_of(golden.golden())) {
    const std::vector<runner::ScoreLine> lines = golden.lines_of(each);
    std::vector<runner::ScoreLine> many;
    while (many.size() < sequences) many.push_back(lines[many.size() % lines.size()]);
    all.push_back({*at(each, "name").if_string(),
                   golden.score(many, std::vector(sequences, golden.mix_of(each)))});
  }
  return all;
}

// What ranks compute who share products with A from so many pairs on.
struct SharedFrom {
  std::vector<Scored> scores;
  int gathered_parts = 0;     // by rank 0
  bool whole_pieces = false;  // rows of 16 bytes each, without which kernels don't share
};
SharedFrom score_sharing(const std::string& model, int ranks, std::int64_t from) {
  std::vector<std::unique_ptr<FailingRank>> made;
  GoldenModel::Options options = on_gpus(ranks, false);
  options.max_rows = 1024;
  options.pages = 1024;
  options.shared_shrinks_from = from;
  options.wrap = [&](dist::Communicator& own) {
    made.push_back(std::make_unique<FailingRank>(own, std::numeric_limits<int>::max()));
    return made.back().get();
  };
  GoldenModel golden(model, options);
  std::vector<Scored> scores = score_many(golden);
  return {std::move(scores), made.front()->gathered_parts(),
          golden.model().config().hidden % 8 == 0};
}

// Products with A, by all ranks or each by a part of them.
void expect_shared_shrinks(const std::string& model, int ranks) {
  constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();
  const SharedFrom own = score_sharing(model, ranks, never);
  const SharedFrom shared = score_sharing(model, ranks, 0);
  expect_same_bits(shared.scores, own.scores);
  EXPECT_EQ(own.gathered_parts, 0);
  // Of four ranks some may have no heads.
  if (ranks == 2) {
    EXPECT_EQ(shared.gathered_parts > 0, shared.whole_pieces);
  }
}
TEST_P(RanksOnTwoGpus, SharedShrinksHaveTheBitsOfOwn) { expect_shared_shrinks(GetParam(), 2); }
TEST_P(RanksOnFourGpus, SharedShrinksHaveTheBitsOfOwn) { expect_shared_shrinks(GetParam(), 4); }

// How far one GPU and two are from float32, in bf16.
struct Errors {
  double of_one = 0;
  double of_two = 0;
};
Errors errors_in_bf16(const std::string& model) {
  GoldenModel reference(model, on_gpus(1));
  GoldenModel one(model, on_gpus(1, false));
  GoldenModel two(model, on_gpus(2, false));
  const std::vector<Scored> wanted = score_all(reference);
  return {.of_one = mean_difference(score_all(one), wanted),
          .of_two = mean_difference(score_all(two), wanted)};
}

// Two GPUs round each part of a sum to bf16, and the sum: three roundings more for each of a
// layer's two results, which have about as many behind them on one GPU. So the error grows by
// sqrt(2) at most. A model alone has some 200 tokens, of which few have most of the error.
constexpr double most_of_all = 1.41;
constexpr double most_of_one_model = 2.5;

TEST_P(RanksOnTwoGpus, IsAboutAsCloseAsOneGpuInBf16) {
  const Errors errors = errors_in_bf16(GetParam());
  EXPECT_LE(errors.of_two, most_of_one_model * errors.of_one + score_tests::tolerance);
}
TEST(RanksOnTwoGpusInBf16, AllModelsTogetherAreAsCloseAsOnOneGpu) {
  ASSERT_TRUE(has_gpu_for_each(2)) << "run it where there are two GPUs";
  Errors all;
  for (const std::string& model : plain_models()) {
    const Errors errors = errors_in_bf16(model);
    all.of_one += errors.of_one;
    all.of_two += errors.of_two;
  }
  EXPECT_LE(all.of_two, most_of_all * all.of_one + score_tests::tolerance);
}

TEST_P(RanksOnTwoGpusFormats, IsAboutAsCloseAsOneGpuInBf16) {
  const Errors errors = errors_in_bf16(GetParam());
  EXPECT_LE(errors.of_two, most_of_one_model * errors.of_one + score_tests::tolerance);
}

TEST_P(RanksOnTwoGpusRounded, IsAboutAsCloseAsOneGpuInBf16) {
  GoldenModel reference(GetParam(), rounding(on_gpus(1)));
  GoldenModel one(GetParam(), rounding(on_gpus(1, false)));
  GoldenModel two(GetParam(), rounding(on_gpus(2, false)));
  const std::vector<Scored> wanted = score_all(reference);
  EXPECT_LE(mean_difference(score_all(two), wanted),
            most_of_one_model * mean_difference(score_all(one), wanted) +
                rounded_tolerance_of(GetParam()));
}

}  // namespace
}  // namespace motley::gpu_tests
