#include "dist/meetings.h"

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace motley::dist {
namespace {

TEST(Meetings, NoRankGoesOnBeforeAllHaveCome) {
  constexpr int ranks = 3;
  constexpr int rounds = 200;
  Meetings meetings(ranks);
  std::array<std::atomic<int>, ranks> begun{};
  std::atomic<bool> apart = false;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      for (int round = 1; round <= rounds; ++round) {
        begun[static_cast<std::size_t>(rank)] = round;
        if (meetings.come(rank, [] { return true; }) != -1) apart = true;
        for (const std::atomic<int>& other : begun)
          if (other < round || other > round + 1) apart = true;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(apart);
}

TEST(Meetings, ARankThatDoesNotComeIsNamed) {
  Meetings meetings(3);
  std::thread first([&] { EXPECT_EQ(meetings.come(0, [] { return false; }), 1); });
  first.join();
  int asked = 0;
  EXPECT_EQ(meetings.come(2, [&] { return ++asked < 5; }), 1);
  EXPECT_EQ(asked, 5);
}

}  // namespace
}  // namespace motley::dist
