#include "cli/engine_stack.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/log.h"
#include "cli/start_log.h"

namespace motley::cli {
namespace {

TEST(SizedBy, TheAdviceNamesTheOptionWhereThereIsNoRoom) {
  const Error full(ErrorCode::out_of_memory, "no room for 2.8 GiB, where RLIMIT_AS leaves 1.0 GiB",
                   "cpu", "free some memory, or ask for less");
  EXPECT_EQ(sized_by(full, "--adapter-memory").message(),
            "no room for 2.8 GiB, where RLIMIT_AS leaves 1.0 GiB (cpu): give less with "
            "--adapter-memory, or free some memory");
  const Error other(ErrorCode::invalid_argument, "not a size", "", "give bytes");
  EXPECT_EQ(sized_by(other, "--adapter-memory").message(), "not a size: give bytes");
}

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
