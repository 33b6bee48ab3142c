// Whole models on several GPUs against one, over the goldens: every family, format and adapter.
// Where there are fewer GPUs ranks share them, in float32.

#include <chrono>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/cat.h"
#include "gpu/ranks_models.h"
#include "score/failing_rank.h"
#include "score/golden_model.h"
#include "score/rounded_inputs.h"
#include "score/sharded_scores.h"

namespace motley::gpu_tests {
namespace {

using namespace score_tests;  // NOLINT(google-build-using-namespace): the tests' model and cases

// Kernels in bf16 take a GPU as their own, and so must not share one with ranks that wait: where
// there are fewer GPUs than ranks, all is computed in float32.
bool has_gpu_for_each(int ranks) {
  const std::vector<int> gpus = gpus_of_ranks(ranks);
  return gpus.back() == ranks - 1;
}

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

TEST_P(RanksOnGpus, ARunRepeatsBitForBit) {
  for (const bool exact : {true, false}) {
    if (!exact && !has_gpu_for_each(2)) continue;
    std::vector<std::vector<Scored>> runs;
    for (int run = 0; run < 2; ++run) {
      GoldenModel golden(GetParam(), on_gpus(2, exact));
      runs.push_back(score_all(golden));
    }
    for (std::size_t c = 0; c < runs[0].size(); ++c)
      for (std::size_t i = 0; i < runs[0][c].results.size(); ++i) {
        EXPECT_EQ(runs[1][c].results[i].token_logprobs, runs[0][c].results[i].token_logprobs)
            << runs[0][c].name << (exact ? "" : " in bf16");
      }
  }
}

// The patterns of sums over ranks launch what their ops do.
TEST_P(RanksOnGpus, FusedSumsHaveTheBitsOfTheirOps) {
  GoldenModel::Options options = on_gpus(2);
  GoldenModel fused(GetParam(), options);
  options.fusion = false;
  GoldenModel plain(GetParam(), options);
  expect_close(score_all(fused), score_all(plain), {2});
}

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
TEST_P(RanksOnGpus, SharedShrinksHaveTheBitsOfOwn) {
  constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();
  for (const int ranks : {2, 4}) {
    if (!has_gpu_for_each(ranks)) continue;
    const SharedFrom own = score_sharing(GetParam(), ranks, never);
    const SharedFrom shared = score_sharing(GetParam(), ranks, 0);
    expect_same_bits(shared.scores, own.scores);
    EXPECT_EQ(own.gathered_parts, 0);
    // Of four ranks some may have no heads.
    if (ranks == 2) {
      EXPECT_EQ(shared.gathered_parts > 0, shared.whole_pieces);
    }
  }
}

// How far one GPU and two are from float32, in bf16.
struct Errors {
  double of_one = 0;
  double of_two = 0;
};
Errors errors_in_bf16(const std::string& model) {
  const bool exact = !has_gpu_for_each(2);
  GoldenModel reference(model, on_gpus(1));
  GoldenModel one(model, on_gpus(1, exact));
  GoldenModel two(model, on_gpus(2, exact));
  const std::vector<Scored> wanted = score_all(reference);
  return {.of_one = mean_difference(score_all(one), wanted),
          .of_two = mean_difference(score_all(two), wanted)};
}

// Two GPUs round each part of a sum to bf16, and the sum: three roundings more for each of a
// layer's two results, which have about as many behind them on one GPU. So the error grows by
// sqrt(2) at most. A model alone has some 200 tokens, of which few have most of the error.
constexpr double most_of_all = 1.41;
constexpr double most_of_one_model = 2.5;

TEST_P(RanksOnGpus, IsAboutAsCloseAsOneGpuInBf16) {
  const Errors errors = errors_in_bf16(GetParam());
  EXPECT_LE(errors.of_two, most_of_one_model * errors.of_one + score_tests::tolerance);
}
TEST(RanksOnGpusInBf16, AllModelsTogetherAreAsCloseAsOnOneGpu) {
  Errors all;
  for (const std::string& model : plain_models()) {
    const Errors errors = errors_in_bf16(model);
    all.of_one += errors.of_one;
    all.of_two += errors.of_two;
  }
  EXPECT_LE(all.of_two, most_of_all * all.of_one + score_tests::tolerance);
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

TEST_P(RanksOnGpusFormats, IsAboutAsCloseAsOneGpuInBf16) {
  const Errors errors = errors_in_bf16(GetParam());
  EXPECT_LE(errors.of_two, most_of_one_model * errors.of_one + score_tests::tolerance);
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

TEST_P(RanksOnGpusRounded, IsAboutAsCloseAsOneGpuInBf16) {
  const bool exact = !has_gpu_for_each(2);
  GoldenModel reference(GetParam(), rounding(on_gpus(1)));
  GoldenModel one(GetParam(), rounding(on_gpus(1, exact)));
  GoldenModel two(GetParam(), rounding(on_gpus(2, exact)));
  const std::vector<Scored> wanted = score_all(reference);
  EXPECT_LE(mean_difference(score_all(two), wanted),
            most_of_one_model * mean_difference(score_all(one), wanted) +
                rounded_tolerance_of(GetParam()));
}

}  // namespace
}  // namespace motley::gpu_tests
