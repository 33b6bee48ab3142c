// What a server says of itself: GET /health while work is stuck, and what it logs of being asked.

#include <mutex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/log.h"
#include "base/system/watchdog.h"
#include "server/test_server.h"

namespace motley::server {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Health, FailsWhileWorkIsStuckAndNoLonger) {
  const SteadyClock clock;
  Watchdog watchdog(std::chrono::milliseconds(1), &clock);
  TestServer server({.watchdog = &watchdog});
  EXPECT_EQ(server.ask(get("/health")).status, 200);
  {
    const auto details = [] { return std::string("3 rows"); };
    const Watchdog::Scope step(&watchdog, Watchdog::Work::step, details);
    ASSERT_TRUE(eventually([&] { return watchdog.stall().has_value(); }));
    const Received stuck = server.ask(get("/health"));
    EXPECT_EQ(stuck.status, 503);
    EXPECT_THAT(stuck.error("message"), HasSubstr("a step has taken"));
    // What runs is for the log.
    EXPECT_THAT(stuck.body, Not(HasSubstr("rows")));
  }
  EXPECT_EQ(server.ask(get("/health")).status, 200);
  EXPECT_THAT(server.ask(get("/metrics")).body,
              HasSubstr("motley_watchdog_stalls_total{what=\"step\"}"));
}

TEST(Health, IsLoggedWhereItFailsOrAtDebug) {
  std::mutex lock;
  std::string lines;
  const auto taken = [&] {
    const std::lock_guard held(lock);
    return std::exchange(lines, {});
  };
  for (const log::Level level : {log::Level::info, log::Level::debug}) {
    log::configure({.level = level, .sink = [&](std::string_view line) {
                      const std::lock_guard held(lock);
                      lines += line;
                    }});
    const SteadyClock clock;
    Watchdog watchdog(std::chrono::hours(1), &clock);
    {
      TestServer server({.watchdog = &watchdog});
      // One client that stays: of each of its answers there is a line before the next is made.
      Client client(server.port());
      const auto ask = [&](std::string_view path) {
        client.send(get(path));
        client.receive();
      };
      for (const std::string_view path : {"/health", "/metrics", "/v1/models"}) ask(path);
      server.service().shut_down();
      ask("/health");
    }
    const std::string said = taken();
    EXPECT_THAT(said, HasSubstr("path=/v1/models status=200"));
    EXPECT_THAT(said, HasSubstr("info    http.request"));
    EXPECT_THAT(said, HasSubstr("path=/health status=503"));
    const auto well =
        level == log::Level::debug
            ? testing::Matcher<std::string>(HasSubstr("path=/health status=200"))
            : testing::Matcher<std::string>(Not(HasSubstr("path=/health status=200")));
    EXPECT_THAT(said, well);
  }
  log::configure({});
}

}  // namespace
}  // namespace motley::server
