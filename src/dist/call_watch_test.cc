#include "dist/call_watch.h"

#include <array>
#include <chrono>

#include <gtest/gtest.h>

namespace motley::dist {
namespace {

using kernels::RankCall;
using std::chrono::seconds;
using Progress = CallWatch::Progress;

constexpr std::uint32_t word(std::uint32_t number, RankCall call = RankCall::sum) {
  return number * kernels::rank_calls + static_cast<std::uint32_t>(call);
}
constexpr Progress done(std::uint32_t number) { return {word(number), word(number)}; }
constexpr Progress in(std::uint32_t number, RankCall call = RankCall::sum) {
  return {word(number, call), word(number - 1)};
}
TimePoint at(int second) { return TimePoint(seconds(second)); }

TEST(CallWatch, NamesTheRankThatHasNotComeWhenTheWaitExceedsItsBound) {
  CallWatch watch(3, seconds(10));
  const std::array ranks{in(5, RankCall::gather), in(5, RankCall::gather), done(4)};
  EXPECT_FALSE(watch.look(ranks, at(100)).has_value());
  EXPECT_FALSE(watch.look(ranks, at(110)).has_value());
  const auto overdue = watch.look(ranks, at(111));
  ASSERT_TRUE(overdue.has_value());
  EXPECT_EQ(overdue->rank, 0);
  EXPECT_EQ(overdue->missing, 2);
  EXPECT_EQ(overdue->call, RankCall::gather);
}

TEST(CallWatch, CallsThatEndAreNoWait) {
  CallWatch watch(2, seconds(10));
  for (std::uint32_t call = 1; call < 50; ++call) {
    EXPECT_FALSE(watch.look(std::array{in(call), in(call)}, at(static_cast<int>(call) * 9)));
  }
  // Nothing is queued for a long time.
  for (int second = 500; second < 600; second += 9)
    EXPECT_FALSE(watch.look(std::array{done(50), done(50)}, at(second)));
  EXPECT_FALSE(watch.look(std::array{in(51), done(50)}, at(600)));
}

TEST(CallWatch, ACallThatAllRanksAreInNamesTheOneThatDoesNotEnd) {
  CallWatch watch(2, seconds(1));
  const std::array ranks{done(7), in(7)};
  EXPECT_FALSE(watch.look(ranks, at(1)));
  const auto overdue = watch.look(ranks, at(3));
  ASSERT_TRUE(overdue.has_value());
  EXPECT_EQ(overdue->rank, 1);
  EXPECT_FALSE(overdue->missing.has_value());
}

TEST(CallWatch, NumbersWrapAround) {
  CallWatch watch(2, seconds(1));
  const std::array ranks{in(1U << 29), done((1U << 29) - 1)};
  EXPECT_FALSE(watch.look(ranks, at(1)));
  const auto overdue = watch.look(ranks, at(3));
  ASSERT_TRUE(overdue.has_value());
  EXPECT_EQ(overdue->missing, 1);
}

}  // namespace
}  // namespace motley::dist
