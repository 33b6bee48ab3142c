#include "cli/idle_memory.h"

#include <gtest/gtest.h>

namespace motley::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TimePoint at(Duration since_start) { return TimePoint(seconds(100)) + since_start; }

TEST(IdleMemory, GoesBackOnceAfterRequestsHaveEnded) {
  IdleMemory idle;
  EXPECT_FALSE(idle.is_time(0, false, at(seconds(0)))) << "nothing was served";
  EXPECT_FALSE(idle.is_time(0, false, at(seconds(60))));
  EXPECT_FALSE(idle.is_time(5, true, at(seconds(61))));
  EXPECT_FALSE(idle.is_time(5, false, at(milliseconds(61'900))));
  EXPECT_TRUE(idle.is_time(5, false, at(milliseconds(62'100))));
  EXPECT_FALSE(idle.is_time(5, false, at(seconds(100))));
}

TEST(IdleMemory, WaitsWhileRequestsCome) {
  IdleMemory idle;
  for (int i = 0; i < 50; ++i)
    EXPECT_FALSE(idle.is_time(static_cast<std::uint64_t>(i) + 1, false, at(milliseconds(200 * i))));
  EXPECT_TRUE(idle.is_time(50, false, at(milliseconds(200 * 49 + 1001))));
}

TEST(IdleMemory, IsNotLookedForAllTheTime) {
  IdleMemory idle;
  EXPECT_FALSE(idle.is_time(1, false, at(seconds(0))));
  EXPECT_TRUE(idle.is_time(1, false, at(seconds(1))));
  EXPECT_FALSE(idle.is_time(2, false, at(milliseconds(1200))));
  EXPECT_FALSE(idle.is_time(2, false, at(seconds(3))));
  EXPECT_TRUE(idle.is_time(2, false, at(seconds(6))));
}

}  // namespace
}  // namespace motley::cli
