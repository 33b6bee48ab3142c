#include "cli/engine_stack.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/log.h"
#include "cli/start_log.h"

namespace motley::cli {
namespace {

constexpr std::uint64_t gib = std::uint64_t{1} << 30;

TEST(DefaultHostTier, IsTwiceTheDevicesPool) {
  EXPECT_EQ(default_host_tier(3 * gib, 100 * gib, 1), 6 * gib);
}

TEST(DefaultHostTier, TakesAtMostHalfOfWhatTheHostHas) {
  EXPECT_EQ(default_host_tier(60 * gib, 40 * gib, 1), 20 * gib);
}

TEST(DefaultHostTier, HoldsAPage) { EXPECT_EQ(default_host_tier(gib, 10, 4096), 4096); }

class ScriptedClock final : public Clock {
 public:
  TimePoint now() const override { return time; }
  TimePoint time{};
};

TEST(StartLog, SaysWhatEachPartTook) {
  std::string lines;
  log::configure({.sink = [&](std::string_view line) { lines += line; }});
  ScriptedClock clock;
  StartLog parts(clock);
  clock.time += std::chrono::milliseconds(250);
  parts.done("weights");
  clock.time += std::chrono::milliseconds(1500);
  parts.done("first steps and graphs");
  log::configure({});
  EXPECT_THAT(lines, testing::HasSubstr("start.part part=weights seconds=0.25"));
  EXPECT_THAT(lines, testing::HasSubstr("start.part part=\"first steps and graphs\" seconds=1.5"));
}

}  // namespace
}  // namespace motley::cli
