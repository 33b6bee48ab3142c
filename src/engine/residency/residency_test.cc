// Requests and their adapters, through the scheduler.

#include "engine/residency/residency.h"

#include <gtest/gtest.h>

#include "base/log.h"
#include "engine/residency/adapter_directory.h"
#include "engine/test_world.h"

namespace motley::engine::test {
namespace {

using std::chrono::milliseconds;

Request request_for(const std::string& name, std::int64_t max_tokens = 4) {
  return {.tokens = prompt(5), .adapters = {{name, 1}}, .max_tokens = max_tokens};
}

TEST(Residency, OthersGoOnWhileAnAdapterLoads) {
  World world;
  world.add_adapter("a", 1, 1);
  world.add_adapter("b", 1, 2);
  const auto first = world.submit(request_for("a", 1));
  world.run();
  world.store.automatic = false;
  const auto loading = world.submit(request_for("b"));
  const auto ready = world.submit(request_for("a"));
  const auto base = world.submit({.tokens = prompt(5), .max_tokens = 4});
  world.run();
  EXPECT_TRUE(ready->usage);
  EXPECT_TRUE(base->usage);
  EXPECT_FALSE(loading->start);
  world.store.run();
  world.run();
  EXPECT_EQ(loading->tokens[0], world.expected(request_for("b")));
}

// How many adapters a load, two requests, an unload and what is published of them look at, while so
// many others are idle.
std::uint64_t looks_beside(int others) {
  World world({.validate = false});
  Residency& residency = world.scheduler.residency();
  for (int i = 0; i < others; ++i) world.add_adapter(cat("idle", i), 1, 1);
  world.add_adapter("pinned", 1, 2, true);
  world.add_adapter("used", 1, 3);
  world.run();
  residency.forget_changes();
  const std::uint64_t before = residency.entries().looks();
  std::uint64_t published = 0;
  const auto publish = [&] {
    world.scheduler.count_by_adapter();
    residency.each_change([&](const std::string&, const AdapterEntry*) { ++published; });
    residency.forget_changes();
  };
  world.add_adapter("new", 1, 4);
  publish();
  const auto first = world.submit(request_for("new"));
  const auto second = world.submit(request_for("used"));
  // The first one places their adapters.
  EXPECT_EQ(world.scheduler.step().value(), Scheduler::Step::idle);
  publish();
  EXPECT_EQ(world.scheduler.step().value(), Scheduler::Step::ran);
  publish();
  world.run();
  publish();
  residency.unload("new", [](const Result<void>& result) { EXPECT_TRUE(result.ok()); });
  publish();
  EXPECT_TRUE(first->usage && second->usage);
  EXPECT_GT(published, 0);
  return residency.entries().looks() - before;
}

TEST(Residency, StepsAndLoadsLookAtNoIdleAdapters) {
  const std::uint64_t few = looks_beside(3);
  EXPECT_GT(few, 0);
  EXPECT_EQ(looks_beside(1000), few);
}

TEST(AdapterDirectory, ShowsWhatHasChangedAndSharesTheRest) {
  World world;
  Residency& residency = world.scheduler.residency();
  AdapterDirectory directory;
  const auto publish = [&] {
    world.scheduler.count_by_adapter();
    auto changes = AdapterDirectory::changes_of(residency);
    residency.forget_changes();
    return directory.apply(std::move(changes)).size();
  };
  world.add_adapter("a", 1, 1);
  world.add_adapter("b", 2, 2);
  EXPECT_EQ(publish(), 0) << "they replace nothing";
  const AdapterDirectory::Shared b = directory.find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->info.pages, 2);
  EXPECT_EQ(b->info.rank, 16);
  EXPECT_EQ(directory.find("c"), nullptr);

  world.submit(request_for("a"));
  world.submit(request_for("a"));
  EXPECT_EQ(world.scheduler.step().value(), Scheduler::Step::idle);
  publish();
  EXPECT_EQ(directory.find("a")->info.state, AdapterState::loading);
  EXPECT_EQ(directory.find("a")->info.waiting, 2);
  EXPECT_EQ(world.scheduler.step().value(), Scheduler::Step::ran);
  publish();
  EXPECT_EQ(directory.find("a")->info.running, 2);
  EXPECT_EQ(directory.find("a")->info.waiting, 0);
  EXPECT_EQ(directory.find("a")->info.state, AdapterState::ready);
  EXPECT_EQ(directory.find("b"), b);
  // It unloads while requests with it run.
  bool unloaded = false;
  residency.unload("a", [&](const Result<void>& result) { unloaded = result.ok(); });
  publish();
  EXPECT_EQ(directory.find("a"), nullptr) << "no request can name it";
  ASSERT_EQ(directory.list().size(), 2);
  EXPECT_EQ(directory.list()[0]->info.state, AdapterState::closing);
  world.run();
  EXPECT_TRUE(unloaded);
  publish();
  ASSERT_EQ(directory.list().size(), 1);
  EXPECT_EQ(directory.list()[0], b);
  // Gone and back between two looks.
  residency.unload("b", [](const Result<void>& result) { EXPECT_TRUE(result.ok()); });
  world.add_adapter("b", 1, 5);
  EXPECT_EQ(publish(), 1);
  EXPECT_EQ(directory.find("b")->info.pages, 1);
  EXPECT_EQ(publish(), 0);
}

TEST(Residency, NamesAreLimitedThoseBeingLoadedIncluded) {
  World world({.max_adapters = 2});
  Residency& residency = world.scheduler.residency();
  for (const char* const name : {"a", "b", "c"}) world.store.put(name, 1, 1);
  world.store.automatic = false;
  const auto load = [&](const std::string& name, bool replace = false) {
    auto answer = std::make_shared<std::optional<Result<void>>>();
    residency.load({.name = name, .path = name}, replace,
                   [answer](Result<void> result) { *answer = std::move(result); });
    return answer;
  };
  const auto missing = load("missing");
  const auto a = load("a");
  const auto refused = load("b");
  ASSERT_TRUE(refused->has_value());
  EXPECT_EQ((*refused)->error().code(), ErrorCode::invalid_argument);
  EXPECT_EQ((*refused)->error().message(),
            "there are 2 adapters already, which is the limit (adapter 'b'): unload one, or start "
            "with a higher --max-adapters");
  world.store.automatic = true;
  residency.collect();
  EXPECT_FALSE((*missing)->ok());
  EXPECT_TRUE((*a)->ok());
  // A name that was not loaded counts no more; one that is held does.
  residency.hold({.name = "b", .path = "b"}, false, [](const Result<void>& held) { held.value(); });
  residency.collect();
  EXPECT_FALSE(load("c")->value().ok());
  EXPECT_TRUE(residency.settle("b", true));
  EXPECT_FALSE(load("c")->value().ok());
  const auto replaced = load("a", true);
  residency.collect();
  EXPECT_TRUE((*replaced)->ok()) << "it takes no other name";
  residency.unload("a", [](const Result<void>& unloaded) { unloaded.value(); });
  const auto c = load("c");
  residency.collect();
  EXPECT_TRUE((*c)->ok());
  EXPECT_EQ(residency.entries().size(), 2U);
}

// A bounded number of adapters is counted each by itself, and an unload leaves nothing behind.
TEST(Residency, AdaptersBeyondALimitAreCountedTogether) {
  World world({.adapter_pages = 400});
  Residency& residency = world.scheduler.residency();
  const auto traffic_of = [&](const std::string& name) -> AdapterTraffic& {
    residency.count_apart(*residency.find(name));
    return residency.traffic_of(*residency.find(name));
  };
  for (int i = 0; i < 258; ++i) world.add_adapter(cat("a", i), 1, static_cast<std::uint32_t>(i));
  for (int i = 0; i < 256; ++i) ++traffic_of(cat("a", i)).failed;
  EXPECT_EQ(&traffic_of("a256"), &residency.other_traffic());
  EXPECT_NE(&traffic_of("a7"), &residency.other_traffic());
  residency.unload("a7", [](const Result<void>& gone) { EXPECT_TRUE(gone.ok()); });
  world.add_adapter("a7", 1, 7);
  EXPECT_EQ(residency.find("a7")->traffic, nullptr);
  EXPECT_NE(&traffic_of("a257"), &residency.other_traffic());
  EXPECT_EQ(&traffic_of("a7"), &residency.other_traffic());
}

TEST(Residency, IdleAdaptersMakeRoomAndComeBack) {
  World world({.adapter_pages = 2});
  for (const std::uint32_t i : {0U, 1U, 2U, 3U, 4U}) world.add_adapter(cat("a", i), 1, i);
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 5; ++i) {
      const auto sink = world.submit(request_for(cat("a", i)));
      world.run();
      EXPECT_EQ(sink->tokens[0], world.expected(request_for(cat("a", i))));
    }
  }
  EXPECT_EQ(world.scheduler.residency().load_stats().loads, 15);
  EXPECT_EQ(world.store.usage().evictions, 13);
}

// Endless requests for two adapters fill the memory; then one for a third arrives.
TEST(Residency, RoomIsMadeForWhatHasWaitedLongEnough) {
  World world({.adapter_pages = 2});
  for (const std::uint32_t i : {0U, 1U, 2U}) world.add_adapter(cat("a", i), 1, i);
  std::shared_ptr<MemorySink> third;
  int step = 0;
  for (; step < 200 && !(third && third->usage); ++step) {
    world.submit(request_for(cat("a", step % 2)));
    if (step == 20) third = world.submit(request_for("a2"));
    world.run(1);
    world.clock.advance(milliseconds(10));
  }
  // 50 steps of patience, then the running sequences of one of the two finish.
  EXPECT_GE(step, 70);
  EXPECT_LE(step, 90);
  world.run();
  EXPECT_TRUE(world.scheduler.empty());
}

TEST(Residency, WhatMoreWaitForComesFirst) {
  World world({.adapter_pages = 1});
  for (const std::uint32_t i : {0U, 1U, 2U}) world.add_adapter(cat("a", i), 1, i);
  world.submit(request_for("a0", 10));
  world.run(1);
  const auto one = world.submit(request_for("a1"));
  const auto two = world.submit(request_for("a2"));
  const auto also_two = world.submit(request_for("a2"));
  while (!one->start && !two->start) {
    world.clock.advance(milliseconds(1));
    world.run(1);
  }
  EXPECT_TRUE(two->start && also_two->start);
  EXPECT_FALSE(one->start);
  world.run();
  EXPECT_TRUE(one->usage);
}

// Many adapters in memory for few: every request is served, in any order.
TEST(Residency, NoRequestStarvesBehindMemoryThatIsTooSmall) {
  World world({.adapter_pages = 3});
  constexpr int adapters = 16;
  for (int i = 0; i < adapters; ++i)
    world.add_adapter(cat("a", i), 1, static_cast<std::uint32_t>(i));
  std::vector<std::shared_ptr<MemorySink>> sinks;
  for (int i = 0; i < 10 * adapters; ++i)
    sinks.push_back(world.submit(request_for(cat("a", i % adapters))));
  for (int step = 0; step < 3000 && !world.scheduler.empty(); ++step) {
    world.run(1);
    world.clock.advance(milliseconds(10));
  }
  EXPECT_TRUE(world.scheduler.empty());
  for (int i = 0; i < 10 * adapters; ++i)
    EXPECT_EQ(sinks[static_cast<std::size_t>(i)]->tokens[0],
              world.expected(request_for(cat("a", i % adapters))));
}

TEST(Residency, WaitsForAdaptersAreOfRequestsThatWaited) {
  World world({.adapter_pages = 1});
  for (const std::uint32_t i : {0U, 1U}) world.add_adapter(cat("a", i), 1, i);
  const auto waits = [&] {
    Stats stats;
    world.scheduler.fill(stats);
    return stats.adapter_wait;
  };
  world.store.automatic = false;
  world.submit(request_for("a0", 20));
  world.run(1);
  world.clock.advance(milliseconds(30));
  world.store.run();
  world.run(1);
  EXPECT_EQ(waits().count, 1);
  EXPECT_DOUBLE_EQ(waits().sum, 0.03);
  // It is ready for the next request; the base always is.
  world.submit(request_for("a0", 20));
  world.submit({.tokens = prompt(5), .max_tokens = 20});
  world.run(2);
  EXPECT_EQ(world.scheduler.running(), 3);
  EXPECT_EQ(waits().count, 1);
}

// Hundreds of requests for the adapter that has the only place; one wants another.
TEST(Residency, AFloodForOneAdapterDoesNotShutOutAnother) {
  World world({.adapter_pages = 1});
  for (const std::uint32_t i : {0U, 1U}) world.add_adapter(cat("a", i), 1, i);
  std::shared_ptr<MemorySink> other;
  constexpr milliseconds step_time(10);
  // 500 ms of patience for each of the 8 that run; then these and as many more.
  constexpr int max_steps = 8 * 50 + 2 * 4;
  constexpr int before = 20;
  int step = 0;
  for (; step < 2 * max_steps && !(other && other->start); ++step) {
    while (world.scheduler.waiting() < 300) world.submit(request_for("a0"));
    if (step == before) other = world.submit(request_for("a1"));
    world.run(1);
    world.clock.advance(step_time);
  }
  EXPECT_LE(step, before + max_steps);
  // Requests for the other adapter are served again as soon.
  const auto late = world.submit(request_for("a0"));
  world.run();
  EXPECT_TRUE(other->usage && late->usage);
  EXPECT_TRUE(world.scheduler.empty());
}

// Each needs an adapter that the other might hold: claims are granted as a whole.
TEST(Residency, MixesNeverWaitForEachOther) {
  World world({.adapter_pages = 2});
  for (const std::uint32_t i : {0U, 1U, 2U, 3U}) world.add_adapter(cat("a", i), 1, i);
  const Request one{.tokens = prompt(5), .adapters = {{"a0", 1}, {"a1", 1}}, .max_tokens = 3};
  const Request two{.tokens = prompt(5), .adapters = {{"a2", 1}, {"a3", 1}}, .max_tokens = 3};
  const Request three{.tokens = prompt(5), .adapters = {{"a1", 1}, {"a2", 1}}, .max_tokens = 3};
  std::vector<std::shared_ptr<MemorySink>> sinks;
  for (const Request& each : {one, two, three, two, one}) sinks.push_back(world.submit(each));
  for (int step = 0; step < 500 && !world.scheduler.empty(); ++step) {
    world.run(1);
    world.clock.advance(milliseconds(100));
  }
  EXPECT_TRUE(world.scheduler.empty());
  EXPECT_EQ(sinks[2]->tokens[0], world.expected(three));
}

TEST(Residency, WhatNeverFitsIsRefused) {
  World world({.adapter_pages = 3});
  world.add_adapter("kept", 1, 1, true);
  world.add_adapter("a", 2, 2);
  world.add_adapter("b", 1, 3);
  world.store.put("large", 4, 4);
  Result<void> answer;
  world.load("large", false, false, &answer);
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code(), ErrorCode::unsupported);
  EXPECT_EQ(answer.error().message(),
            "it takes 16.0 KiB, and adapters have 8.0 KiB that pinned adapters leave (adapter "
            "'large'): give them more memory (--adapter-memory)");
  const auto both =
      world.submit({.tokens = prompt(5), .adapters = {{"a", 1}, {"b", 1}}, .max_tokens = 3});
  const auto one = world.submit(request_for("a"));
  world.run();
  ASSERT_TRUE(both->error);
  EXPECT_EQ(both->error->code(), ErrorCode::unsupported);
  EXPECT_TRUE(one->usage);
}

TEST(Residency, AMixWithoutRoomInAStepFailsAlone) {
  WorldOptions options;
  options.limits.mix_rank = 8;
  World world(options);
  world.add_adapter("a", 1, 1);
  world.add_adapter("grown", 2, 2);
  const auto grown = world.submit(request_for("grown"));
  const auto beside = world.submit(request_for("a"));
  world.run();
  ASSERT_TRUE(grown->error);
  EXPECT_EQ(grown->error->code(), ErrorCode::invalid_argument);
  EXPECT_FALSE(grown->start);
  EXPECT_EQ(beside->tokens[0], world.expected(request_for("a")));
}

TEST(Residency, UnloadedAdaptersMakeRoom) {
  World world({.adapter_pages = 2});
  for (const std::uint32_t seed : {1U, 2U, 3U}) {
    world.add_adapter("a", 2, seed);
    const auto sink = world.submit(request_for("a"));
    world.run();
    EXPECT_EQ(sink->tokens[0], world.expected(request_for("a")));
    bool unloaded = false;
    world.scheduler.residency().unload("a", [&](const Result<void>& r) { unloaded = r.ok(); });
    EXPECT_TRUE(unloaded);
    EXPECT_EQ(world.store.usage().pinned_pages, 0);
  }
}

TEST(Residency, PinnedAdaptersStay) {
  World world({.adapter_pages = 2});
  world.add_adapter("kept", 1, 1, true);
  world.run();
  for (const std::uint32_t i : {0U, 1U, 2U}) {
    world.add_adapter(cat("a", i), 1, i);
    const auto sink = world.submit(request_for(cat("a", i)));
    world.run();
    EXPECT_TRUE(sink->usage);
  }
  EXPECT_TRUE(world.scheduler.residency().find("kept")->is<AdapterEntry::Ready>());
  EXPECT_EQ(world.store.usage().pinned_pages, 1);
}

TEST(Residency, UnloadingWaitsForItsRequestsAndTakesNoNewOnes) {
  World world;
  world.add_adapter("a", 1, 1);
  const auto running = world.submit(request_for("a", 6));
  world.run(2);
  std::optional<Result<void>> answer;
  world.scheduler.residency().unload("a", [&](Result<void> result) { answer = std::move(result); });
  const auto late = world.submit(request_for("a"));
  ASSERT_TRUE(late->error);
  EXPECT_EQ(late->error->code(), ErrorCode::not_found);
  Result<void> again;
  world.load("a", false, false, &again);
  EXPECT_EQ(again.error().code(), ErrorCode::busy);
  world.run(3);
  EXPECT_FALSE(answer);
  world.run();
  EXPECT_EQ(running->tokens[0], world.expected(request_for("a", 6)));
  ASSERT_TRUE(answer && answer->ok());
  EXPECT_TRUE(world.scheduler.residency().entries().empty());
  world.scheduler.residency().unload("a", [&](Result<void> result) { answer = std::move(result); });
  EXPECT_EQ(answer->error().code(), ErrorCode::not_found);
}

TEST(Residency, ReplacedContentServesWhatBeginsLater) {
  World world;
  world.add_adapter("a", 1, 1);
  const Request request = request_for("a", 8);
  const std::vector<std::int32_t> old_answer = world.expected(request);
  const auto running = world.submit(request);
  world.run(3);
  Result<void> answer = Error(ErrorCode::internal, "");
  world.store.put("a", 2, 5);
  world.load("a", false, false, &answer);
  EXPECT_EQ(answer.error().code(), ErrorCode::invalid_argument);
  world.load("a", false, true, &answer);
  ASSERT_TRUE(answer.ok());
  const auto later = world.submit(request);
  world.run();
  EXPECT_EQ(running->tokens[0], old_answer);
  EXPECT_EQ(later->tokens[0], world.expected(request));
  EXPECT_NE(later->tokens[0], old_answer);
}

// It waits for pages while its adapter is resident, and is replaced meanwhile.
TEST(Residency, AReplacementReachesARequestThatWaitsForPages) {
  World world({.limits = {.rows = 64,
                          .sequences = 1,
                          .sequence_tokens = 64,
                          .pages = 64,
                          .page_tokens = 4,
                          .vocabulary = 97}});
  world.add_adapter("a", 1, 1);
  world.submit({.tokens = prompt(4), .max_tokens = 20});
  const auto waiting = world.submit(request_for("a"));
  world.run(4);
  EXPECT_EQ(world.store.usage().pinned_pages, 1);
  world.store.put("a", 1, 7);
  Result<void> answer = Error(ErrorCode::internal, "");
  world.load("a", false, true, &answer);
  ASSERT_TRUE(answer.ok());
  world.run();
  EXPECT_EQ(waiting->tokens[0], world.expected(request_for("a")));
}

TEST(Residency, AFailedLoadFailsItsRequestsOnly) {
  World world({.adapter_pages = 1});
  world.add_adapter("a", 1, 1);
  world.add_adapter("b", 1, 2);
  world.store.remove("a");
  world.submit(request_for("b"));
  world.run();
  const auto gone = world.submit(request_for("a"));
  const auto fine = world.submit(request_for("b"));
  world.run();
  for (int step = 0; step < 100 && !world.scheduler.empty(); ++step) {
    world.clock.advance(milliseconds(100));
    world.run(1);
  }
  ASSERT_TRUE(gone->error);
  EXPECT_EQ(gone->error->code(), ErrorCode::unavailable);
  EXPECT_EQ(gone->error->message().find(
                "its files can't be read as they were when it was loaded (adapter 'a'): "),
            0U)
      << gone->error->message();
  EXPECT_TRUE(fine->usage);
  // Different content under a path is not mistaken for what was loaded from it.
  world.store.put("a", 1, 3);
  const auto changed = world.submit(request_for("a"));
  world.run();
  ASSERT_TRUE(changed->error);
  EXPECT_EQ(changed->error->code(), ErrorCode::unavailable);
}

TEST(Residency, ABrokenAdapterIsLoggedOnceUntilItIsWholeAgain) {
  std::vector<std::string> lines;
  log::configure({.sink = [&](std::string_view line) { lines.emplace_back(line); }});
  World world({.adapter_pages = 1});
  world.add_adapter("a", 1, 1);
  world.add_adapter("b", 1, 2);
  const auto is_broken = [&] { return world.scheduler.residency().find("a")->broken; };
  const auto evict = [&] {
    world.submit(request_for("b"));
    world.run();
  };
  evict();
  EXPECT_FALSE(is_broken());
  for (const int round : {1, 2}) {
    std::ignore = world.scheduler.adapters_changed();
    world.store.put("a", 1, 3);
    for (int i = 0; i < 3; ++i) {
      const auto failed = world.submit(request_for("a"));
      world.run();
      ASSERT_TRUE(failed->error);
      EXPECT_EQ(world.scheduler.adapters_changed(), i == 0)
          << "a reader of the state sees it at once";
    }
    EXPECT_TRUE(is_broken());
    ASSERT_EQ(lines.size(), static_cast<std::size_t>(round));
    EXPECT_NE(lines.back().find("engine.adapter_broken adapter=a path=a"), std::string::npos)
        << lines.back();
    world.store.put("a", 1, 1);
    const auto whole = world.submit(request_for("a"));
    world.run();
    EXPECT_FALSE(whole->error);
    EXPECT_FALSE(is_broken());
    EXPECT_TRUE(world.scheduler.adapters_changed());
    evict();
  }
  log::configure({});
}

TEST(Residency, AnAdapterWithoutAFolderIsRefused) {
  World world;
  Result<void> answer;
  world.load("nowhere", false, false, &answer);
  EXPECT_EQ(answer.error().code(), ErrorCode::not_found);
  EXPECT_EQ(world.scheduler.residency().find("nowhere"), nullptr);
}

TEST(Residency, CancellingTheFirstInLineReopensTheOthers) {
  World world({.adapter_pages = 1});
  world.add_adapter("a", 1, 1);
  world.add_adapter("b", 1, 2);
  world.submit(request_for("a", 50));
  world.run(2);
  world.submit(request_for("b"));
  world.run(1);
  world.clock.advance(milliseconds(600));
  world.run(1);
  EXPECT_TRUE(world.scheduler.residency().making_room());
  const auto closed_out = world.submit(request_for("a"));
  world.run(1);
  EXPECT_FALSE(closed_out->start);
  world.scheduler.cancel(2);
  world.run(1);
  EXPECT_FALSE(world.scheduler.residency().making_room());
  EXPECT_TRUE(closed_out->start);
}

}  // namespace
}  // namespace motley::engine::test
