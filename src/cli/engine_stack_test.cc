#include "cli/engine_stack.h"

#include <optional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/log.h"
#include "cli/start_log.h"

namespace motley::cli {
namespace {

constexpr std::uint64_t gib = std::uint64_t{1} << 30;

std::uint64_t default_tier(const HostTier& tier) {
  return host_tier_bytes(tier, std::nullopt).value();
}

TEST(HostTier, IsTwiceTheDevicesPool) {
  EXPECT_EQ(default_tier({.pool_bytes = 3 * gib, .host_available = 100 * gib}), 6 * gib);
  EXPECT_EQ(default_tier({.pool_bytes = 3 * gib, .host_available = 100 * gib, .ranks = 4}),
            6 * gib);
}

TEST(HostTier, TakesAtMostHalfOfWhatTheHostHasForAllGpus) {
  EXPECT_EQ(default_tier({.pool_bytes = 60 * gib, .host_available = 40 * gib}), 20 * gib);
  EXPECT_EQ(default_tier({.pool_bytes = 60 * gib, .host_available = 40 * gib, .ranks = 2}),
            10 * gib);
  EXPECT_EQ(
      default_tier({.pool_bytes = 60 * gib, .host_available = 40 * gib, .ranks = 2, .replicas = 2}),
      5 * gib);
}

TEST(HostTier, HoldsAPage) {
  EXPECT_EQ(default_tier({.pool_bytes = gib, .page_bytes = 4096, .host_available = 10}), 4096);
}

TEST(HostTier, RanksShareOutWhatWasAskedFor) {
  EXPECT_EQ(host_tier_bytes({.page_bytes = 4096, .ranks = 4, .replicas = 2}, 8 * gib).value(),
            2 * gib);
  const auto refused = host_tier_bytes({.page_bytes = 4096, .ranks = 2}, 5000);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message(),
            "4.9 KiB hold no page of adapters for each of 2 ranks, which takes 4.0 KiB: give at "
            "least 8.0 KiB");
}

ModelSettings with_memory(std::uint64_t bytes) {
  ModelSettings settings;
  settings.state_memory = bytes;
  return settings;
}

TEST(StateRooms, AreSharedOutAmongSlotsAndSnapshots) {
  const StateRoom room{
      .slot_bytes = 4096, .snapshot_bytes = 1024, .sequences = 64, .otherwise = 16 * 4096};
  const runner::StatePlan otherwise = plan_states(room, {}).value();
  EXPECT_EQ(otherwise.slots, 8);
  EXPECT_EQ(otherwise.snapshots, 32);
  const runner::StatePlan asked = plan_states(room, with_memory(5 * 4096)).value();
  EXPECT_EQ(asked.slots, 2);
  EXPECT_EQ(asked.snapshots, 12);
}

TEST(StateRooms, HoldOneSequence) {
  const StateRoom room{.slot_bytes = 4096, .snapshot_bytes = 1024, .sequences = 64};
  EXPECT_EQ(plan_states(room, {}).value().slots, 1) << "whatever is free";
  EXPECT_EQ(plan_states(room, with_memory(4000)).error().message(),
            "3.9 KiB hold no sequence's state, which takes 4.0 KiB (--state-memory): give more, "
            "half of it for snapshots");
}

TEST(StateRooms, AreOfModelsWithStates) {
  EXPECT_EQ(plan_states({}, {}).value().slots, 0);
  EXPECT_EQ(plan_states({}, with_memory(gib)).error().message(),
            "no layer of this model keeps a state for each sequence (--state-memory): leave it "
            "out");
  ModelSettings settings;
  settings.state_snapshots = 0;
  EXPECT_EQ(plan_states({}, settings).error().where(), "--state-snapshots");
}

TEST(SizedBy, TheAdviceNamesTheOptionWhereThereIsNoRoom) {
  const Error full(ErrorCode::out_of_memory, "no room for 2.8 GiB, where RLIMIT_AS leaves 1.0 GiB",
                   "cpu", "free some memory, or ask for less");
  EXPECT_EQ(sized_by(full, "--adapter-memory").message(),
            "no room for 2.8 GiB, where RLIMIT_AS leaves 1.0 GiB (cpu): give less with "
            "--adapter-memory, or free some memory");
  const Error other(ErrorCode::invalid_argument, "not a size", "", "give bytes");
  EXPECT_EQ(sized_by(other, "--adapter-memory").message(), "not a size: give bytes");
}

TEST(RequestMemory, IsAQuarterOfASmallLimit) {
  EXPECT_EQ(default_request_memory(64 * gib), 2 * gib);
  EXPECT_EQ(default_request_memory(gib), gib / 4);
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
