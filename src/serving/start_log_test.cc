#include "serving/start_log.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/log.h"

namespace motley::serving {
namespace {

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
}  // namespace motley::serving
