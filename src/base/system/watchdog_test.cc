#include "base/system/watchdog.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/log.h"
#include "base/test_clock.h"
#include "base/test_waits.h"

namespace motley {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr auto limit = std::chrono::seconds(2);

class WatchdogTest : public testing::Test {
 protected:
  WatchdogTest() {
    log::configure({.sink = [this](std::string_view line) {
      monitor_.change([&] { lines_.emplace_back(line); });
    }});
  }
  ~WatchdogTest() override { log::configure({}); }

  std::string wait_for_line(std::size_t index) {
    monitor_.wait("the watchdog logs another line", [&] { return lines_.size() > index; });
    return monitor_.look([&] { return lines_[index]; });
  }
  std::size_t lines() {
    return monitor_.look([this] { return lines_.size(); });
  }

  test::ScriptedClock clock_;
  test::Monitor monitor_;
  std::vector<std::string> lines_;
};

TEST_F(WatchdogTest, WhatTakesTooLongIsLoggedCountedAndReportedUntilItEnds) {
  Watchdog watchdog(limit, &clock_);
  const auto details = [] { return std::string("rows 17"); };
  {
    const Watchdog::Scope step(&watchdog, Watchdog::Work::step, details);
    EXPECT_FALSE(watchdog.stall());
    clock_.advance(std::chrono::seconds(3));
    EXPECT_THAT(wait_for_line(0), AllOf(HasSubstr("warning watchdog.stalled what=step seconds=3"),
                                        HasSubstr("details=\"rows 17\"")));
    ASSERT_TRUE(watchdog.stall());
    EXPECT_EQ(watchdog.stall()->code(), ErrorCode::unavailable);
    EXPECT_THAT(watchdog.stall()->message(), HasSubstr("a step has taken 3 s so far"));
    EXPECT_EQ(watchdog.stalls()[static_cast<std::size_t>(Watchdog::Work::step)], 1);
    clock_.advance(std::chrono::seconds(2));
  }
  EXPECT_THAT(wait_for_line(1), HasSubstr("warning watchdog.ended what=step seconds=5"));
  EXPECT_FALSE(watchdog.stall());
  EXPECT_EQ(lines(), 2U);
}

TEST_F(WatchdogTest, WhatEndsInTimeIsNeverAskedWhatItWasAt) {
  Watchdog watchdog(limit, &clock_);
  const auto details = [] {
    ADD_FAILURE() << "nothing asks";
    return std::string();
  };
  for (int i = 0; i < 1000; ++i) {
    const Watchdog::Scope step(&watchdog, Watchdog::Work::step, details);
    clock_.advance(limit / 2);
  }
  EXPECT_EQ(lines(), 0U);
  EXPECT_EQ(watchdog.stalls(), (std::array<std::uint64_t, Watchdog::works>{}));
}

TEST_F(WatchdogTest, SeveralAtOnceAreDistinguished) {
  Watchdog watchdog(limit, &clock_);
  const auto none = [] { return std::string(); };
  const auto load = [] { return std::string("adapter a"); };
  {
    const Watchdog::Scope first(&watchdog, Watchdog::Work::adapter_load, load);
    {
      const Watchdog::Scope step(&watchdog, Watchdog::Work::step, none);
    }
    clock_.advance(limit);
    EXPECT_THAT(wait_for_line(0), HasSubstr("what=adapter_load"));
    {
      const Watchdog::Scope request(&watchdog, Watchdog::Work::request, none);
      clock_.advance(limit);
      EXPECT_THAT(wait_for_line(1), HasSubstr("what=request"));
      // Of several, the one that began first.
      EXPECT_THAT(watchdog.stall()->message(), HasSubstr("the load of an adapter"));
    }
    EXPECT_TRUE(watchdog.stall());
  }
  EXPECT_FALSE(watchdog.stall());
  EXPECT_EQ(watchdog.stalls(), (std::array<std::uint64_t, Watchdog::works>{0, 0, 1, 1}));
}

TEST(NoWatchdog, WatchesNothing) {
  bool asked = false;
  const auto details = [&asked] {
    asked = true;
    return std::string();
  };
  {
    const Watchdog::Scope step(nullptr, Watchdog::Work::step, details);
  }
  EXPECT_FALSE(asked);
}

}  // namespace
}  // namespace motley
