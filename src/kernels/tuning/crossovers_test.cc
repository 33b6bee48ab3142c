#include "kernels/tuning/crossovers.h"

#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace motley::kernels {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

using Us = std::vector<std::optional<double>>;

MeasuredTimes times(std::vector<MeasuredTimes::Candidate> candidates) {
  MeasuredTimes made{.rows = {}, .candidates = std::move(candidates)};
  for (std::size_t i = 0; i < made.candidates.front().us.size(); ++i)
    made.rows.push_back(std::int64_t{1} << i);
  return made;
}

TunedRow row(std::int64_t up_to, std::string kernel) {
  return {.up_to = up_to, .kernel = std::move(kernel)};
}
TunedRow last(std::string kernel) { return row(TunedRow::any, std::move(kernel)); }

TEST(Crossovers, OneRowWhereOneKernelIsFastest) {
  EXPECT_THAT(find_crossovers(times({{"a", Us{1, 2, 3}}, {"b", Us{2, 3, 4}}})),
              ElementsAre(last("a")));
}

TEST(Crossovers, ARowEndsWhereItsKernelWasLastFastest) {
  EXPECT_THAT(find_crossovers(times({{"a", Us{1, 2, 8, 9}}, {"b", Us{5, 5, 5, 5}}})),
              ElementsAre(row(2, "a"), last("b")));
}

TEST(Crossovers, NoiseDisplacesNoNeighbour) {
  // b wins by 2 % at most between rows of a.
  EXPECT_THAT(find_crossovers(times({{"a", Us{1, 1.02, 1}}, {"b", Us{2, 1, 2}}})),
              ElementsAre(last("a")));
  EXPECT_THAT(find_crossovers(times({{"a", Us{1, 1.03, 1}}, {"b", Us{2, 1, 2}}})),
              ElementsAre(row(1, "a"), row(2, "b"), last("a")));
}

TEST(Crossovers, TheFirstKernelYieldsToTheNextWithinNoise) {
  EXPECT_THAT(find_crossovers(times({{"a", Us{1, 2, 2}}, {"b", Us{1.01, 1, 1}}})),
              ElementsAre(last("b")));
}

TEST(Crossovers, OfEquallyFastKernelsTheFirst) {
  EXPECT_THAT(find_crossovers(times({{"a", Us{1, 1}}, {"b", Us{1, 1}}})), ElementsAre(last("a")));
}

TEST(Crossovers, AKernelThatRefusesRowsEndsBefore) {
  EXPECT_THAT(find_crossovers(times({{"a", Us{1, {}, {}}}, {"b", Us{{}, 5, 5}}})),
              ElementsAre(row(1, "a"), last("b")));
  EXPECT_THAT(find_crossovers(times({{"a", Us{{}, 1}}, {"b", Us{{}, 2}}})), ElementsAre(last("a")));
}

TEST(Crossovers, NothingMeasuredGivesNoRow) {
  EXPECT_THAT(find_crossovers({}), IsEmpty());
  EXPECT_THAT(find_crossovers(times({{"a", Us{{}, {}}}})), IsEmpty());
}

TEST(Crossovers, EveryChoiceIsWithinNoiseOfTheFastest) {
  // Made-up times with waves and gaps.
  std::uint32_t state = 7;
  const auto random = [&] { return (state = state * 1664525U + 1013904223U) >> 16; };
  for (int round = 0; round < 500; ++round) {
    MeasuredTimes made = times({{"a", Us(12)}, {"b", Us(12)}, {"c", Us(12)}});
    for (MeasuredTimes::Candidate& each : made.candidates)
      for (auto& us : each.us)
        if (random() % 5 != 0) us = 100.0 + random() % 8;
    const std::vector<TunedRow> rows = find_crossovers(made);
    for (std::size_t at = 0; at < made.rows.size(); ++at) {
      double best = std::numeric_limits<double>::infinity();
      for (const auto& each : made.candidates) best = std::min(best, each.us[at].value_or(best));
      if (best == std::numeric_limits<double>::infinity()) continue;
      const auto chosen = std::ranges::find_if(
          rows, [&](const TunedRow& each) { return made.rows[at] <= each.up_to; });
      ASSERT_NE(chosen, rows.end());
      const auto of =
          std::ranges::find(made.candidates, chosen->kernel, &MeasuredTimes::Candidate::name);
      ASSERT_TRUE(of->us[at].has_value());
      EXPECT_LE(*of->us[at], best * (1 + tuning_noise));
    }
  }
}

TEST(Crossovers, MeasuresEveryCandidateOnceAndSaysWhatLoses) {
  const std::vector<std::string> names{"a", "b", "never"};
  const std::vector<std::int64_t> ladder = tuning_ladder(4);
  EXPECT_THAT(ladder, ElementsAre(1, 2, 4));
  std::vector<double> limits;
  std::vector<std::size_t> order;
  const auto measured = measure_candidates(
      names, ladder,
      [&](std::size_t candidate, std::int64_t rows, double limit) -> Result<std::optional<double>> {
        limits.push_back(limit);
        order.push_back(candidate);
        if (candidate == 2) return std::optional<double>();
        return std::optional(candidate == 0 ? 4.0 * static_cast<double>(rows) : 7.0);
      });
  ASSERT_TRUE(measured.ok());
  ASSERT_EQ(measured->candidates.size(), 2);
  EXPECT_EQ(measured->candidates[0].us, (Us{4, 8, 16}));
  EXPECT_EQ(limits[0], std::numeric_limits<double>::infinity());
  EXPECT_EQ(limits[1], 5);
  // The fastest of the last number of rows is the first with the next one.
  EXPECT_THAT(order, ElementsAre(0, 1, 2, 0, 1, 2, 1, 0, 2));
  EXPECT_THAT(find_crossovers(*measured), ElementsAre(row(1, "a"), last("b")));
}

TEST(Crossovers, AFailedMeasurementIsAnError) {
  const std::vector<std::string> names{"a"};
  const std::vector<std::int64_t> ladder{1};
  const auto measured = measure_candidates(
      names, ladder, [](std::size_t, std::int64_t, double) -> Result<std::optional<double>> {
        return Error(ErrorCode::internal, "the GPU failed");
      });
  EXPECT_FALSE(measured.ok());
}

}  // namespace
}  // namespace motley::kernels
