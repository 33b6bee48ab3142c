#include "engine/engine.h"

#include <atomic>
#include <future>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "base/log.h"
#include "base/system/watchdog.h"
#include "base/test_waits.h"
#include "engine/test_world.h"

namespace motley::engine::test {
namespace {

// Samplers of prompts that begin with 96 are ready only when the test releases them.
class SlowSamplers final : public FakeSamplers {
 public:
  Abandon prepare(const Request& request, Prepared done) override {
    if (request.tokens[0] != 96) return FakeSamplers::prepare(request, std::move(done));
    held_back_.push_back(std::move(done));
    return {};
  }

  void hand_out(bool well = true) {
    for (Prepared& done : std::exchange(held_back_, {})) {
      if (well) {
        done(std::unique_ptr<Sampler>(std::make_unique<FakeSampler>(0)));
      } else {
        done(Error(ErrorCode::invalid_argument, "no such rule", "grammar"));
      }
    }
  }

 private:
  std::vector<Prepared> held_back_;
};

// Preparation for foreseen adapters takes three pieces of work.
class ForeseeingExecutor final : public FakeExecutor {
 public:
  using FakeExecutor::FakeExecutor;

  void foresee(const lora::SiteSet& sites) override {
    if (sites_ == sites) return;
    sites_ = sites;
    pieces_ = 3;
  }
  Result<bool> work_ahead() override {
    if (ahead_fails) return Error(ErrorCode::internal, "the device is lost");
    if (pieces_ == 0) return false;
    if (--pieces_ == 0) ready_.set_value(sites_);
    return true;
  }
  lora::SiteSet wait_until_ready() {
    return motley::test::get(ready_, "steps with the loaded adapters are prepared");
  }
  std::atomic<bool> ahead_fails = false;

 private:
  lora::SiteSet sites_;
  int pieces_ = 0;
  std::promise<lora::SiteSet> ready_;
};

struct EngineWorld {
  explicit EngineWorld(const WorldOptions& options = {}, std::int64_t max_queue = 1024)
      : executor(options.limits), store(options.adapter_pages) {
    engine = Engine::create(
        {.executor = &executor, .samplers = &samplers, .adapters = &store, .clock = &clock},
        {.max_queue = max_queue, .validate = true});
  }

  Result<void> load(const std::string& name, bool replace = false) {
    std::promise<Result<void>> answer;
    engine->load_adapter({.name = name, .path = name}, replace,
                         [&](Result<void> result) { answer.set_value(std::move(result)); });
    return motley::test::get(answer, "the load is answered");
  }
  Result<void> unload(const std::string& name) {
    std::promise<Result<void>> answer;
    engine->unload_adapter(name, [&](Result<void> result) { answer.set_value(std::move(result)); });
    return motley::test::get(answer, "the unload is answered");
  }
  std::vector<std::int32_t> expected(const Request& request) const {
    std::vector<lora::Mix::KeyPart> key;
    for (const lora::ScaledAdapter& each : request.adapters)
      key.push_back({store.on_disk(each.name).version, each.scale});
    return expected_choice(request, key, 0, executor.limits().vocabulary,
                           engine->max_sequence_tokens());
  }

  SteadyClock clock;
  ForeseeingExecutor executor;
  SlowSamplers samplers;
  FakeStore store;
  std::unique_ptr<Engine> engine;
};

TEST(Engine, ServesBaseAndAdapters) {
  EngineWorld world;
  world.store.put("a", 1, 1);
  ASSERT_TRUE(world.load("a").ok());
  for (const Request& request :
       {Request{.tokens = prompt(7), .max_tokens = 9},
        Request{.tokens = prompt(7), .adapters = {{"a", 1}}, .max_tokens = 9}}) {
    const auto sink = std::make_shared<WaitingSink>();
    ASSERT_TRUE(world.engine->submit(request, sink).ok());
    EXPECT_EQ(sink->wait().tokens[0], world.expected(request));
  }
  world.engine->shutdown(Engine::Drain::finish);
  const Stats stats = world.engine->stats();
  EXPECT_EQ(stats.requests, 2);
  EXPECT_EQ(stats.generated_tokens, 18);
  EXPECT_EQ(stats.finished_length, 2);
  EXPECT_EQ(stats.kv_pages_used, 0);
  EXPECT_EQ(stats.time_to_first_token.count, 2);
  EXPECT_EQ(stats.broken_invariants, 0);
}

// Its only step waits until it is released.
class StuckExecutor : public FakeExecutor {
 public:
  using FakeExecutor::FakeExecutor;

  Result<void> step(std::span<const runner::Chunk> chunks, std::span<ChunkOutput> outputs,
                    FunctionRef<void()> meanwhile) override {
    begun.set();
    may_end.wait("the test lets the step end");
    return FakeExecutor::step(chunks, outputs, meanwhile);
  }

  motley::test::Event begun;
  motley::test::Event may_end;
};

TEST(Engine, AStuckStepIsLoggedWithItsContentsAndReportedUntilItEnds) {
  std::promise<std::string> stalled;
  std::promise<std::string> ended;
  log::configure({.level = log::Level::warning, .sink = [&](std::string_view line) {
                    if (line.find("what=step") == line.npos) return;
                    const bool end = line.find("watchdog.ended") != line.npos;
                    (end ? ended : stalled).set_value(std::string(line));
                  }});
  ScriptedClock clock;
  constexpr std::chrono::seconds limit(30);
  Watchdog watchdog(limit, &clock);
  StuckExecutor executor(WorldOptions{}.limits);
  FakeStore store(8);
  store.put("law", 1, 1);
  {
    FakeSamplers samplers;
    const auto engine = Engine::create(
        {.executor = &executor, .samplers = &samplers, .adapters = &store, .clock = &clock},
        {.watchdog = &watchdog, .validate = true});
    std::promise<void> loaded;
    engine->load_adapter({.name = "law", .path = "law"}, false,
                         [&](const Result<void>&) { loaded.set_value(); });
    motley::test::get(loaded, "the load is answered");
    const auto sink = std::make_shared<WaitingSink>();
    const Request request{.tokens = prompt(7), .adapters = {{"law", 1}}, .max_tokens = 1};
    ASSERT_TRUE(engine->submit(request, sink).ok());
    executor.begun.wait("the step begins");
    EXPECT_FALSE(watchdog.stall());
    clock.advance(limit);
    const std::string line = motley::test::get(stalled, "the watchdog logs the step");
    EXPECT_NE(line.find("7 rows of 1 sequences, adapters: law"), line.npos) << line;
    EXPECT_TRUE(watchdog.stall());
    executor.may_end.set();
    sink->wait();
    motley::test::get(ended, "the watchdog logs the end of the step");
    EXPECT_FALSE(watchdog.stall());
  }
  EXPECT_EQ(watchdog.stalls()[static_cast<std::size_t>(Watchdog::Work::step)], 1);
  log::configure({});
}

// What it computes is not finite, and it keeps a step's adapters until it is asked.
class OverflowingExecutor final : public StuckExecutor {
 public:
  using StuckExecutor::StuckExecutor;

  Result<void> step(std::span<const runner::Chunk> chunks, std::span<ChunkOutput> outputs,
                    FunctionRef<void()> meanwhile) override {
    MOTLEY_TRY_VOID(StuckExecutor::step(chunks, outputs, meanwhile));
    for (ChunkOutput& output : outputs) {
      for (Draw& draw : output.draws) draw.token = kernels::logits_not_finite;
    }
    keeps_adapters = true;
    return {};
  }
  Result<void> release_adapters() override {
    keeps_adapters = false;
    return {};
  }
  std::atomic<bool> keeps_adapters = false;
};

// The request's end leaves no work, and no step follows.
TEST(Engine, KeepsNoAdaptersOfALastStepThatFailed) {
  OverflowingExecutor executor(WorldOptions{}.limits);
  FakeStore store(8);
  FakeSamplers samplers;
  SteadyClock clock;
  const auto engine = Engine::create(
      {.executor = &executor, .samplers = &samplers, .adapters = &store, .clock = &clock},
      {.validate = true});
  const auto sink = std::make_shared<WaitingSink>();
  const Request request{.tokens = prompt(7), .max_tokens = 1};
  ASSERT_TRUE(engine->submit(request, sink).ok());
  executor.begun.wait("the step begins");
  std::thread ending([&] { engine->shutdown(Engine::Drain::finish); });
  const auto is_ending = [&] {
    const auto refused = engine->submit(request, std::make_shared<WaitingSink>());
    return !refused.ok() && refused.error().code() == ErrorCode::unavailable;
  };
  while (!is_ending()) std::this_thread::yield();
  executor.may_end.set();
  ending.join();
  EXPECT_FALSE(executor.keeps_adapters);
}

TEST(Engine, RefusesWhatIsOutOfRangeByItsField) {
  EngineWorld world;
  const auto where_of = [&](const Request& request) {
    const auto answer = world.engine->submit(request, std::make_shared<WaitingSink>());
    return answer.ok() ? std::string("accepted") : answer.error().where();
  };
  const Request good{.tokens = prompt(7)};
  Request bad = good;
  bad.tokens.clear();
  EXPECT_EQ(where_of(bad), "prompt");
  bad.tokens = {97};
  EXPECT_EQ(where_of(bad), "prompt");
  bad = good;
  bad.sampling.top_p = 0;
  EXPECT_EQ(where_of(bad), "top_p");
  bad = good;
  bad.sampling.temperature = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(where_of(bad), "temperature");
  bad = good;
  bad.sampling.top_logprobs = 21;
  EXPECT_EQ(where_of(bad), "top_logprobs");
  bad = good;
  bad.end_ids = {97};
  EXPECT_EQ(where_of(bad), "end_ids");
  bad = good;
  bad.stop_ids = {-1};
  EXPECT_EQ(where_of(bad), "stop_token_ids");
  bad = good;
  bad.choices = 129;
  EXPECT_EQ(where_of(bad), "n");
  bad = good;
  bad.adapters = {{"nobody", 1}};
  EXPECT_EQ(where_of(bad), "adapters");
  bad = good;
  bad.tokens = prompt(256);
  const auto answer = world.engine->submit(bad, std::make_shared<WaitingSink>());
  EXPECT_EQ(answer.error().code(), ErrorCode::too_long);
}

TEST(Engine, RefusesAdaptersThatStepsHaveNoRoomFor) {
  WorldOptions options;
  options.limits.adapter_rank = 16;
  options.limits.mix_rank = 24;
  EngineWorld world(options);
  world.store.put("eight", 1, 1);
  world.store.put("sixteen", 2, 2);
  world.store.put("other", 2, 3);
  world.store.put("large", 3, 4);
  for (const char* const name : {"eight", "sixteen", "other"}) ASSERT_TRUE(world.load(name).ok());
  EXPECT_EQ(world.load("large").error().message(),
            "it has factors of rank 24, and steps have room for 16 (adapter 'large'): use a "
            "smaller one, or serve it on the CPU");
  const auto sink = std::make_shared<WaitingSink>();
  const auto refused = world.engine->submit(
      {.tokens = prompt(7), .adapters = {{"sixteen", 1}, {"other", 1}}, .max_tokens = 2}, sink);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::invalid_argument);
  EXPECT_EQ(refused.error().message(),
            "the ranks of 'sixteen' (16) and 'other' (16) add up to 32, and steps have room for 24 "
            "(adapters): use fewer or smaller ones at once");
  const Request fits{
      .tokens = prompt(7), .adapters = {{"sixteen", 1}, {"eight", 1}}, .max_tokens = 2};
  ASSERT_TRUE(world.engine->submit(fits, sink).ok());
  EXPECT_FALSE(sink->wait().error);
}

TEST(Engine, LoadsReplacesAndUnloads) {
  EngineWorld world;
  EXPECT_EQ(world.load("a").error().code(), ErrorCode::not_found);
  world.store.put("a", 1, 1);
  ASSERT_TRUE(world.load("a").ok());
  EXPECT_EQ(world.load("a").error().code(), ErrorCode::invalid_argument);
  ASSERT_EQ(world.engine->adapters().size(), 1);
  const std::string old_version = world.engine->adapters()[0].version;
  world.store.put("a", 1, 2);
  ASSERT_TRUE(world.load("a", true).ok());
  EXPECT_NE(world.engine->adapters()[0].version, old_version);
  ASSERT_TRUE(world.unload("a").ok());
  EXPECT_TRUE(world.engine->adapters().empty());
  EXPECT_EQ(world.unload("a").error().code(), ErrorCode::not_found);
}

TEST(Engine, AnAnswerSaysWhichContentItIsMadeWith) {
  EngineWorld world;
  for (const char* const name : {"a", "b"}) {
    world.store.put(name, 1, name[0]);
    ASSERT_TRUE(world.load(name).ok());
  }
  const auto version_with = [&](std::vector<lora::ScaledAdapter> adapters) {
    const auto sink = std::make_shared<WaitingSink>();
    const Request request{.tokens = prompt(7), .adapters = std::move(adapters), .max_tokens = 2};
    EXPECT_TRUE(world.engine->submit(request, sink).ok());
    return sink->wait().start->adapter_version;
  };
  const auto listed = [&](std::string_view name) { return world.engine->adapter(name)->version; };
  EXPECT_EQ(version_with({}), "");
  const std::string old_version = listed("a");
  EXPECT_EQ(version_with({{"a", 0.5F}}), old_version);
  const std::string both = version_with({{"b", 1}, {"a", 1}});
  EXPECT_EQ(both, cat(listed("b"), ",", old_version));
  world.store.put("a", 1, 2);
  ASSERT_TRUE(world.load("a", true).ok());
  EXPECT_EQ(version_with({{"a", 1}}), listed("a"));
  EXPECT_NE(listed("a"), old_version);
}

TEST(Engine, AVersionHasTheNameThatItsMakerGaveIt) {
  EngineWorld world;
  world.store.put("a", 1, 1);
  const auto load = [&](AdapterSpec spec) {
    spec.name = spec.path = "a";
    std::promise<Result<void>> answer;
    world.engine->load_adapter(spec, true,
                               [&](Result<void> result) { answer.set_value(std::move(result)); });
    return motley::test::get(answer, "the load is answered");
  };
  const auto version_of_an_answer = [&] {
    const auto sink = std::make_shared<WaitingSink>();
    const Request request{.tokens = prompt(7), .adapters = {{"a", 1}}, .max_tokens = 2};
    EXPECT_TRUE(world.engine->submit(request, sink).ok());
    return sink->wait().start->adapter_version;
  };
  ASSERT_TRUE(load({.version = "step-1", .expected_version = ""}).ok());
  EXPECT_EQ(world.engine->adapter("a")->version, "step-1");
  EXPECT_EQ(version_of_an_answer(), "step-1");
  // The same content under another name.
  ASSERT_TRUE(load({.version = "step-2", .expected_version = "step-1"}).ok());
  EXPECT_EQ(version_of_an_answer(), "step-2");
  for (const char* const wrong : {"", "step-1", "step"}) {
    const Result<void> refused = load({.version = "step-3", .expected_version = wrong});
    ASSERT_FALSE(refused.ok()) << wrong;
    EXPECT_EQ(refused.error().code(), ErrorCode::conflict);
    EXPECT_NE(refused.error().message().find("its version is 'step-2' now"), std::string::npos);
  }
  EXPECT_EQ(version_of_an_answer(), "step-2");
  ASSERT_TRUE(load({}).ok());
  EXPECT_EQ(version_of_an_answer().size(), 32U) << "the content's";
}

TEST(Engine, PublishesWhatChangesOfEachAdapter) {
  EngineWorld world;
  for (const std::uint32_t i : {0U, 1U, 2U}) world.store.put(cat("a", i), 1, i);
  for (const char* const name : {"a2", "a0", "a1"}) ASSERT_TRUE(world.load(name).ok());
  const auto names = [&] {
    std::vector<std::string> all;
    for (const AdapterInfo& each : world.engine->adapters()) all.push_back(each.name);
    return all;
  };
  EXPECT_EQ(names(), (std::vector<std::string>{"a0", "a1", "a2"}));
  EXPECT_EQ(world.engine->adapter("a1").value().path, "a1");
  EXPECT_FALSE(world.engine->adapter("a3").has_value());
  ASSERT_TRUE(world.unload("a1").ok());
  EXPECT_EQ(names(), (std::vector<std::string>{"a0", "a2"}));
  EXPECT_FALSE(world.engine->adapter("a1").has_value());
  // The same name again, with other content.
  world.store.put("a1", 2, 7);
  ASSERT_TRUE(world.load("a1").ok());
  EXPECT_EQ(world.engine->adapter("a1").value().pages, 2);
}

TEST(Engine, CountsTheRequestsOfEachAdapter) {
  EngineWorld world;
  world.store.put("a", 1, 1);
  world.store.put("b", 1, 2);
  ASSERT_TRUE(world.load("a").ok());
  ASSERT_TRUE(world.load("b").ok());
  ASSERT_TRUE(world.load("a", true).ok());
  const auto ask = [&](std::vector<lora::ScaledAdapter> adapters, bool internal = false) {
    const auto sink = std::make_shared<WaitingSink>();
    const Request request{.tokens = prompt(5),
                          .adapters = std::move(adapters),
                          .max_tokens = 4,
                          .internal = internal};
    ASSERT_TRUE(world.engine->submit(request, sink).ok());
    sink->wait();
  };
  ask({});
  ask({{"a"}});
  ask({{"a"}, {"b", 0.5F}});
  ask({{"b"}}, true);
  ask({}, true);
  world.engine->shutdown(Engine::Drain::finish);
  const Stats stats = world.engine->stats();
  EXPECT_EQ(stats.requests, 3U);
  EXPECT_EQ(stats.begun_tokens, 15U);
  EXPECT_EQ(stats.generated_tokens, 12U);
  EXPECT_EQ(stats.finished_length, 3U);
  EXPECT_EQ(stats.prefill_time.count, 3U);
  EXPECT_EQ(stats.answer_lengths.count, 3U);
  EXPECT_EQ(stats.adapter_replacements, 1U);
  EXPECT_EQ(stats.base_traffic.generated_tokens, 4U);
  ASSERT_EQ(stats.adapters.size(), 2U);
  const AdapterInfo& a = stats.adapters[0];
  ASSERT_NE(a.traffic, nullptr);
  EXPECT_EQ(a.traffic->generated_tokens, 8U);
  EXPECT_EQ(a.traffic->prompt_tokens, 10U);
  EXPECT_EQ(a.traffic->finished_length, 2U);
  EXPECT_EQ(a.traffic->time_to_first_token.count, 2U);
  EXPECT_EQ(a.traffic->time_per_token.count, 6U);
  ASSERT_NE(stats.adapters[1].traffic, nullptr);
  EXPECT_EQ(stats.adapters[1].traffic->generated_tokens, 4U);
}

// Steps of a new adapter are prepared while the engine is idle, before any request.
TEST(Engine, MakesReadyForLoadedAdaptersWhileItIsIdle) {
  EngineWorld world;
  world.store.put("a", 1, 1);
  ASSERT_TRUE(world.load("a").ok());
  EXPECT_EQ(world.executor.wait_until_ready(), lora::SiteSet(world.store.on_disk("a")));
  const auto sink = std::make_shared<WaitingSink>();
  const Request request{.tokens = prompt(7), .adapters = {{"a", 1}}, .max_tokens = 9};
  ASSERT_TRUE(world.engine->submit(request, sink).ok());
  EXPECT_EQ(sink->wait().tokens[0], world.expected(request));
}

// The error reaches waiting requests, too.
TEST(Engine, ADeviceThatIsLostWhileItIsIdleFailsWhatWaits) {
  EngineWorld world;
  world.store.put("a", 1, 1);
  ASSERT_TRUE(world.load("a").ok());
  world.executor.wait_until_ready();
  world.store.automatic = false;
  world.executor.ahead_fails = true;
  const auto sink = std::make_shared<WaitingSink>();
  const Request request{.tokens = prompt(7), .adapters = {{"a", 1}}, .max_tokens = 9};
  // The engine may have noticed the failure already.
  if (const auto accepted = world.engine->submit(request, sink); !accepted.ok()) {
    EXPECT_EQ(accepted.error().message(), "the device is lost");
    return;
  }
  const MemorySink& memory = sink->wait();
  ASSERT_TRUE(memory.error.has_value());
  EXPECT_EQ(memory.error->message(), "the device is lost");
  EXPECT_FALSE(world.engine->health().ok());
}

TEST(Engine, CancelsWhatRuns) {
  EngineWorld world;
  const auto sink = std::make_shared<WaitingSink>();
  const auto id = world.engine->submit({.tokens = prompt(2), .max_tokens = 250}, sink);
  sink->wait_for_tokens(1);
  world.engine->cancel(*id);
  const MemorySink& memory = sink->wait();
  ASSERT_TRUE(memory.usage);
  world.engine->cancel(*id);
}

// Requests beyond those that find a place in the batch are refused; with max_queue 0 only those.
TEST(Engine, RefusesMoreThanTheQueueHolds) {
  for (const std::int64_t queue : {0, 2}) {
    WorldOptions options;
    options.limits.sequences = 3;
    EngineWorld world(options, queue);
    const Request slow{.tokens = {96}, .max_tokens = 1};
    std::vector<std::shared_ptr<WaitingSink>> sinks;
    for (std::int64_t i = 0; i < 3 + queue; ++i) {
      sinks.push_back(std::make_shared<WaitingSink>());
      ASSERT_TRUE(world.engine->submit(slow, sinks.back()).ok());
    }
    const auto late = world.engine->submit(slow, std::make_shared<WaitingSink>());
    ASSERT_FALSE(late.ok());
    EXPECT_EQ(late.error().code(), ErrorCode::busy);
    world.samplers.hand_out();
    for (const auto& sink : sinks) EXPECT_TRUE(sink->wait().usage);
  }
}

TEST(Engine, AFullQueueHasPlacesForOtherClients) {
  WorldOptions options;
  options.limits.sequences = 1;
  EngineWorld world(options, 100);
  Request slow{.tokens = {96}, .max_tokens = 1};
  std::vector<std::shared_ptr<WaitingSink>> sinks;
  const auto send = [&](const std::string& client) {
    slow.client = client;
    const auto sink = std::make_shared<WaitingSink>();
    const auto id = world.engine->submit(slow, sink);
    if (id.ok()) sinks.push_back(sink);
    return id;
  };
  int accepted = 0;
  for (int i = 0; i < 1300; ++i) accepted += send("one").ok() ? 1 : 0;
  EXPECT_EQ(accepted, 101);
  for (int i = 0; i < 50; ++i) EXPECT_TRUE(send("other").ok()) << i;
  const auto late = send("other");
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().what(), "151 requests wait already, 50 of them yours");
  EXPECT_TRUE(send("third").ok());
  world.samplers.hand_out();
  for (const auto& sink : sinks) EXPECT_TRUE(sink->wait().usage);
  EXPECT_TRUE(send("one").ok());
  world.samplers.hand_out();
  EXPECT_TRUE(sinks.back()->wait().usage);
}

TEST(Engine, WhatIsPreparedLateIsServedCancelledOrFails) {
  EngineWorld world;
  const Request slow{.tokens = {96, 5}, .max_tokens = 3};
  const auto served = std::make_shared<WaitingSink>();
  const auto cancelled = std::make_shared<WaitingSink>();
  ASSERT_TRUE(world.engine->submit(slow, served).ok());
  const auto id = world.engine->submit(slow, cancelled);
  world.engine->cancel(*id);
  const Request quick{.tokens = prompt(3), .max_tokens = 3};
  const auto beside = std::make_shared<WaitingSink>();
  ASSERT_TRUE(world.engine->submit(quick, beside).ok());
  EXPECT_TRUE(beside->wait().usage);
  world.samplers.hand_out();
  EXPECT_EQ(served->wait().tokens[0], world.expected(slow));
  EXPECT_EQ(cancelled->wait().reasons[0], FinishReason::cancelled);

  const auto failed = std::make_shared<WaitingSink>();
  ASSERT_TRUE(world.engine->submit(slow, failed).ok());
  world.samplers.hand_out(false);
  ASSERT_TRUE(failed->wait().error);
  EXPECT_EQ(failed->wait().error->where(), "grammar");
}

TEST(Engine, ShutsDownWithWhatRuns) {
  for (const Engine::Drain drain : {Engine::Drain::finish, Engine::Drain::cancel}) {
    EngineWorld world;
    const auto sink = std::make_shared<WaitingSink>();
    ASSERT_TRUE(world.engine->submit({.tokens = prompt(2), .max_tokens = 250}, sink).ok());
    sink->wait_for_tokens(1);
    world.engine->shutdown(drain);
    const auto late = world.engine->submit({.tokens = prompt(2)}, std::make_shared<WaitingSink>());
    EXPECT_EQ(late.error().code(), ErrorCode::unavailable);
    EXPECT_EQ(world.load("a").error().code(), ErrorCode::unavailable);
    const MemorySink& memory = sink->wait();
    ASSERT_TRUE(memory.usage);
    if (drain == Engine::Drain::finish) {
      EXPECT_EQ(memory.tokens[0].size(), 250);
    }
  }
}

TEST(Engine, ABrokenDeviceIsTheEnd) {
  EngineWorld world;
  world.executor.broken = true;
  const auto sink = std::make_shared<WaitingSink>();
  ASSERT_TRUE(world.engine->submit({.tokens = prompt(2)}, sink).ok());
  ASSERT_TRUE(sink->wait().error);
  world.engine->shutdown(Engine::Drain::finish);
  EXPECT_EQ(world.engine->health().error().what(), "the device is lost");
  const auto late = world.engine->submit({.tokens = prompt(2)}, std::make_shared<WaitingSink>());
  EXPECT_EQ(late.error().what(), "the device is lost");
}

// Clients on their own threads, while adapters are loaded and unloaded.
TEST(Engine, ManyClientsAtOnce) {
  EngineWorld world({.limits = {.rows = 24,
                                .sequences = 6,
                                .sequence_tokens = 80,
                                .pages = 30,
                                .page_tokens = 4,
                                .vocabulary = 97},
                     .adapter_pages = 3});
  for (const std::uint32_t i : {0U, 1U, 2U, 3U}) world.store.put(cat("a", i), 1, i);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(world.load(cat("a", i)).ok());
  constexpr int clients = 4;
  constexpr int requests = 100;
  std::vector<std::thread> threads;
  for (int client = 0; client < clients; ++client) {
    threads.emplace_back([&, client] {
      std::mt19937 random(static_cast<std::uint32_t>(client));
      for (int i = 0; i < requests; ++i) {
        Request request{.tokens = prompt(1 + static_cast<std::int64_t>(random() % 30), client),
                        .max_tokens = static_cast<std::int64_t>(random() % 10)};
        if (random() % 2 == 0) request.adapters = {{cat("a", random() % 4), 1}};
        const auto sink = std::make_shared<WaitingSink>();
        const auto id = world.engine->submit(request, sink);
        if (!id.ok()) {
          EXPECT_EQ(id.error().code(), ErrorCode::not_found);
          continue;
        }
        const bool cancel = random() % 8 == 0;
        if (cancel) world.engine->cancel(*id);
        const MemorySink& memory = sink->wait();
        if (memory.error) {
          EXPECT_EQ(memory.error->code(), ErrorCode::not_found);
        } else if (!cancel) {
          EXPECT_EQ(memory.tokens[0], world.expected(request));
        }
      }
    });
  }
  threads.emplace_back([&] {
    for (int i = 0; i < 40; ++i) {
      EXPECT_TRUE(world.unload("a3").ok());
      EXPECT_TRUE(world.load("a3").ok());
      EXPECT_TRUE(world.load("a2", true).ok());
      EXPECT_LE(world.engine->stats().adapters.size(), 4);
    }
  });
  for (std::thread& thread : threads) thread.join();
  world.engine->shutdown(Engine::Drain::finish);
  EXPECT_EQ(world.engine->stats().kv_pages_used, 0);
  EXPECT_EQ(world.store.usage().pinned_pages, 0);
}

}  // namespace
}  // namespace motley::engine::test
