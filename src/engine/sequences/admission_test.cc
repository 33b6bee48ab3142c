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

TEST(Admission, ForesightGrowsWhereSequencesArePushedBackAndWanes) {
  Foresight foresight;
  EXPECT_EQ(foresight.growth(2, 100), 1);
  foresight.learn(true);
  foresight.learn(true);
  EXPECT_EQ(foresight.growth(2, 100), 4);
  EXPECT_EQ(foresight.growth(2, 5), 3);  // no more than it can take
  EXPECT_EQ(foresight.growth(5, 5), 1);
  for (int i = 0; i < 20; ++i) foresight.learn(true);
  EXPECT_EQ(foresight.pages(), Foresight::most);
  for (int i = 1; i < Foresight::calm_steps; ++i) foresight.learn(false);
  EXPECT_EQ(foresight.pages(), Foresight::most);
  foresight.learn(false);
  EXPECT_EQ(foresight.pages(), Foresight::most / 2);
  for (int i = 0; i < 10 * Foresight::calm_steps; ++i) foresight.learn(false);
  EXPECT_EQ(foresight.pages(), 1);
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
