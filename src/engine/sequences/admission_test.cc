#include "engine/sequences/admission.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

namespace motley::engine {
namespace {

TEST(Admission, AloneASequenceTakesEveryPage) {
  EXPECT_TRUE(shortage({.pages = 10}, {.available = 10, .running = 0, .max_running = 4}).none());
  EXPECT_EQ(shortage({.pages = 11}, {.available = 10, .running = 0, .max_running = 4}),
            (Shortage{.pages = 1}));
}

TEST(Admission, BesideOthersEachKeepsAPageToGrow) {
  const Room room{.available = 10, .growth = 3, .running = 2, .max_running = 4};
  EXPECT_TRUE(shortage({.pages = 7}, room).none());
  EXPECT_EQ(shortage({.pages = 8}, room), (Shortage{.pages = 1}));
}

TEST(Admission, TheGrowthReserveGrowsWithPreemptionsAndShrinks) {
  GrowthReserve reserve;
  EXPECT_EQ(reserve.growth(2, 100), 1);
  reserve.learn(true);
  reserve.learn(true);
  EXPECT_EQ(reserve.growth(2, 100), 4);
  EXPECT_EQ(reserve.growth(2, 5), 3);  // no more than it can take
  EXPECT_EQ(reserve.growth(5, 5), 1);
  for (int i = 0; i < 20; ++i) reserve.learn(true);
  EXPECT_EQ(reserve.pages(), GrowthReserve::max_pages);
  for (int i = 1; i < GrowthReserve::calm_steps; ++i) reserve.learn(false);
  EXPECT_EQ(reserve.pages(), GrowthReserve::max_pages);
  reserve.learn(false);
  EXPECT_EQ(reserve.pages(), GrowthReserve::max_pages / 2);
  for (int i = 0; i < 10 * GrowthReserve::calm_steps; ++i) reserve.learn(false);
  EXPECT_EQ(reserve.pages(), 1);
}

// Pages that others own cost nothing; cached pages stop being available when they are reused.
TEST(Admission, FoundPagesCostWhatTheyTakeFromTheAvailable) {
  const Room room{.available = 4, .running = 0, .max_running = 4};
  EXPECT_TRUE(shortage({.pages = 9, .found = 5, .idle = 0}, room).none());
  EXPECT_EQ(shortage({.pages = 9, .found = 5, .idle = 2}, room), (Shortage{.pages = 2}));
}

TEST(Admission, StepsHoldSoManySequences) {
  EXPECT_EQ(shortage({.pages = 1}, {.available = 50, .running = 4, .max_running = 4}),
            (Shortage{.sequences = 1}));
}

TEST(Admission, TheLongestSequenceIsWhatModelAndMemoryHold) {
  EXPECT_EQ(longest_sequence(4096, 100, 16), 1600);
  EXPECT_EQ(longest_sequence(4096, 1000, 16), 4096);
}

}  // namespace
}  // namespace motley::engine
