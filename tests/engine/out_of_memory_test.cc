// The nth allocation fails, for every n that a scenario comes to: what was asked is answered as if
// alone, or fails cleanly, and no other request notices.

#include <array>
#include <future>
#include <memory>

#include <gtest/gtest.h>

#include "base/log.h"
#include "base/test_waits.h"
#include "engine/engine.h"
#include "engine/replicas/replicated_engine.h"
#include "engine/test_world.h"
#include "support/allocations.h"

namespace motley::engine::test {
namespace {

using motley::test::fail_allocations;
using motley::test::Spared;
using motley::test::stop_failing;
using motley::test::take_part;

// Takes no memory for what it hears, as sinks must not fail.
class ReservedSink final : public EventSink {
 public:
  explicit ReservedSink(const Request& request)
      : tokens(static_cast<std::size_t>(request.choices)) {
    for (auto& choice : tokens) choice.reserve(static_cast<std::size_t>(request.max_tokens));
  }

  void take(Event event) override {
    const Spared spared;
    EXPECT_FALSE(closed_) << "nothing follows the last event";
    std::visit([this](auto& each) { keep(each); }, event);
  }

  bool closed() const { return closed_; }
  void wait() const {
    monitor_.wait("the request ends", [this] { return closed_; });
  }

  std::vector<std::vector<std::int32_t>> tokens;
  std::int64_t scored = 0;
  std::size_t routed = 0;
  int choices_finished = 0;
  std::optional<Error> error;

 private:
  void keep(const StartEvent&) { EXPECT_FALSE(std::exchange(begun_, true)); }
  void keep(const VersionEvent&) {}
  void keep(const PromptEvent& event) {
    EXPECT_EQ(event.first, scored + 1);
    scored += static_cast<std::int64_t>(event.logprobs.size());
  }
  void keep(const RoutedExpertsEvent& event) { routed += event.ids.size(); }
  void keep(const TokenEvent& event) {
    tokens[static_cast<std::size_t>(event.choice)].push_back(event.id);
  }
  void keep(const ChoiceEvent&) { ++choices_finished; }
  void keep(const Usage&) { close({}); }
  void keep(const Error& why) { close(why); }
  void close(std::optional<Error> why) {
    monitor_.change([&] {
      error = std::move(why);
      closed_ = true;
    });
  }

  bool begun_ = false;
  motley::test::Monitor monitor_;
  bool closed_ = false;
};

struct Asked {
  Request request;
  std::shared_ptr<ReservedSink> sink;
};

Asked ask_for(Request request) {
  auto sink = std::make_shared<ReservedSink>(request);
  return {.request = std::move(request), .sink = std::move(sink)};
}

// Requests of every kind, more than the pages hold at once.
std::vector<Asked> requests_of_every_kind() {
  std::vector<Asked> all;
  all.push_back(ask_for({.tokens = prompt(9, 1), .max_tokens = 14}));
  all.push_back(ask_for({.tokens = prompt(9, 1), .adapters = {{"a", 1}}, .max_tokens = 12}));
  all.push_back(ask_for({.tokens = prompt(17, 2), .max_tokens = 7, .choices = 3}));
  all.push_back(
      ask_for({.tokens = prompt(13, 3), .adapters = {{"a", 0.5F}, {"b", 2}}, .max_tokens = 9}));
  all.push_back(ask_for({.tokens = prompt(11, 4), .max_tokens = 6, .prompt_logprobs = true}));
  all.push_back(ask_for({.tokens = prompt(9, 1), .max_tokens = 11, .priority = 1}));
  all.push_back(
      ask_for({.tokens = prompt(14, 6), .max_tokens = 8, .choices = 2, .routed_experts_from = 5}));
  all.push_back(ask_for({.tokens = prompt(40, 5), .adapters = {{"c", 1}}, .max_tokens = 20}));
  return all;
}

constexpr WorldOptions little_room = {.limits = {.rows = 24,
                                                 .sequences = 5,
                                                 .sequence_tokens = 96,
                                                 .pages = 24,
                                                 .page_tokens = 4,
                                                 .vocabulary = 97,
                                                 .routed_experts = fake_routing},
                                      .adapter_pages = 3};

// Where it is spared its own allocations don't fail, so that what fails is the scheduler's.
class SparedExecutor final : public FakeExecutor {
 public:
  SparedExecutor(const Limits& limits, bool is_spared)
      : FakeExecutor(limits), is_spared_(is_spared) {}

  Result<void> copy_page(std::int32_t from, std::int32_t to) override {
    if (!is_spared_) return FakeExecutor::copy_page(from, to);
    const Spared spared;
    return FakeExecutor::copy_page(from, to);
  }
  Result<void> copy_state(std::int32_t from, std::int32_t to) override {
    const Spared spared;
    return FakeExecutor::copy_state(from, to);
  }
  Result<void> offload_state(std::int32_t place, std::int32_t host_place) override {
    const Spared spared;
    return FakeExecutor::offload_state(place, host_place);
  }
  Result<void> load_state(std::int32_t host_place, std::int32_t slot) override {
    const Spared spared;
    return FakeExecutor::load_state(host_place, slot);
  }
  Result<void> step(std::span<const runner::Chunk> chunks, std::span<ChunkOutput> outputs,
                    FunctionRef<void()> meanwhile) override {
    if (!is_spared_) return FakeExecutor::step(chunks, outputs, meanwhile);
    meanwhile();
    const Spared spared;
    return FakeExecutor::step(chunks, outputs, [] {});
  }

 private:
  bool is_spared_;
};

// A scheduler whose invariants the test looks at, because looking takes memory.
struct FailingWorld {
  explicit FailingWorld(bool spare_executor, const Executor::Limits& limits = little_room.limits)
      : executor(limits, spare_executor),
        store(little_room.adapter_pages),
        scheduler(&executor, &store, &clock, {.adapter_patience = std::chrono::milliseconds(5)}) {
    std::uint32_t seed = 0;
    for (const char* name : {"a", "b", "c"}) {
      store.put(name, name == std::string("c") ? 2 : 1, ++seed);
      scheduler.residency().load({.name = name, .path = name}, false,
                                 [](const Result<void>& loaded) { loaded.value(); });
      scheduler.residency().collect();
    }
  }

  void submit(const Asked& asked) {
    Scheduler::Arrival arrival{.id = ++last_id, .accepted = clock.now()};
    {
      const Spared out_of_the_scheduler;
      arrival.request = asked.request;
      arrival.sink = asked.sink;
      arrival.sampler = std::make_unique<FakeSampler>(0);
    }
    scheduler.submit(std::move(arrival));
    check();
  }
  // Steps in which one adapter's requests stand still.
  void step_in_pause() {
    const Result<void> paused = within_memory(
        [this] { return scheduler.pause({.mode = PauseMode::keep, .adapter = "a"}); });
    for (int i = 0; i < 2; ++i) step();
    scheduler.resume("a");
    check();
    EXPECT_TRUE(paused.ok() || paused.error().code() == ErrorCode::out_of_memory);
  }
  void step() {
    EXPECT_TRUE(scheduler.step().ok());
    clock.advance(std::chrono::milliseconds(1));
    check();
  }
  void check() {
    const Spared spared_check;
    const Result<void> checked = scheduler.check();
    EXPECT_TRUE(checked.ok()) << checked.error().message();
  }
  std::vector<std::int32_t> expected(const Request& request, int choice) const {
    std::vector<lora::Mix::KeyPart> key;
    for (const lora::ScaledAdapter& each : request.adapters)
      key.push_back({store.on_disk(each.name).version, each.scale});
    std::ranges::sort(key);
    return expected_choice(
        request, key, choice, little_room.limits.vocabulary,
        longest_sequence(little_room.limits.sequence_tokens, little_room.limits.pages,
                         little_room.limits.page_tokens));
  }
  // For who is not answered.
  std::string describe() const {
    std::string text = cat("silence: ", scheduler.running(), " run, ", scheduler.waiting(),
                           " wait; pages in use ", scheduler.pages().used());
    residency->entries().each([&](const std::string& name, const AdapterEntry& entry) {
      text += cat("; ", name, " ", entry.state.index(), " claims ", entry.claims, " begun ",
                  entry.begun, entry.retry_below() ? " is tried again" : "");
    });
    return text;
  }
  // How many of them failed; the others have their answers.
  int failures(const std::vector<Asked>& all) const {
    int count = 0;
    for (const Asked& asked : all) {
      EXPECT_TRUE(asked.sink->closed()) << describe();
      if (asked.sink->error) {
        EXPECT_EQ(asked.sink->error->code(), ErrorCode::out_of_memory);
        ++count;
        continue;
      }
      EXPECT_EQ(asked.sink->choices_finished, asked.request.choices);
      if (asked.request.prompt_logprobs) {
        EXPECT_EQ(asked.sink->scored, static_cast<std::int64_t>(asked.request.tokens.size()) - 1);
      }
      for (int choice = 0; choice < asked.request.choices; ++choice)
        EXPECT_EQ(asked.sink->tokens[static_cast<std::size_t>(choice)],
                  expected(asked.request, choice));
    }
    return count;
  }

  ScriptedClock clock;
  SparedExecutor executor;
  FakeStore store;
  Scheduler scheduler;
  Residency* residency = &scheduler.residency();
  RequestId last_id = 0;
};

struct Swept {
  std::int64_t failed = 0;  // allocations
  int requests = 0;         // that failed
};

// Requests that come one by one beside running steps, while allocations fail.
Swept serve_with_failures(std::int64_t nth, std::int64_t count, bool spare_executor,
                          const Executor::Limits& limits = little_room.limits) {
  FailingWorld world(spare_executor, limits);
  world.executor.copies_take = 2;
  const std::vector<Asked> all = requests_of_every_kind();
  fail_allocations(nth, count);
  take_part(true);
  for (const Asked& asked : all) {
    world.submit(asked);
    world.step();
    if (asked.request.adapters.size() == 2) world.step_in_pause();
  }
  const auto open = [&] {
    return std::ranges::any_of(all, [](const Asked& asked) { return !asked.sink->closed(); });
  };
  for (int i = 0; i < 2000 && open(); ++i) world.step();
  take_part(false);
  Swept swept{.failed = stop_failing(), .requests = 0};
  swept.requests = world.failures(all);
  EXPECT_EQ(world.scheduler.pages().used(), 0);
  EXPECT_EQ(world.scheduler.requests(), 0U);
  // Later requests are served.
  const std::vector<Asked> later = requests_of_every_kind();
  for (const Asked& asked : later) world.submit(asked);
  const auto waits = [&] {
    return std::ranges::any_of(later, [](const Asked& asked) { return !asked.sink->closed(); });
  };
  for (int i = 0; i < 2000 && waits(); ++i) world.step();
  EXPECT_EQ(world.failures(later), 0);
  return swept;
}

TEST(OutOfMemory, OneAllocationThatFailsIsOneRequestAtMost) {
  std::int64_t nth = 1;
  int ended = 0;
  for (; !testing::Test::HasFailure(); ++nth) {
    SCOPED_TRACE(nth);
    const Swept swept = serve_with_failures(nth, 1, true);
    if (swept.failed == 0) break;
    EXPECT_LE(swept.requests, 1);
    ended += swept.requests;
  }
  // The scenario has come to its end, and many of its allocations belonged to a request.
  EXPECT_GT(nth, 200);
  EXPECT_GT(ended, 50);
}

// Of a model that keeps states, with few places for snapshots on the device and on the host.
TEST(OutOfMemory, OneAllocationThatFailsIsOneRequestAtMostWhereThereAreStates) {
  Executor::Limits limits = little_room.limits;
  limits.state_slots = limits.sequences;
  limits.snapshots = 2;
  limits.host_snapshots = 4;
  for (std::int64_t nth = 1; !testing::Test::HasFailure(); ++nth) {
    SCOPED_TRACE(nth);
    const Swept swept = serve_with_failures(nth, 1, true, limits);
    if (swept.failed == 0) break;
    EXPECT_LE(swept.requests, 1);
  }
}

TEST(OutOfMemory, WhereMemoryStaysShortForAWhileEveryRequestStillEnds) {
  for (std::int64_t nth = 1; !testing::Test::HasFailure(); nth += 3) {
    SCOPED_TRACE(nth);
    if (serve_with_failures(nth, 40, true).failed == 0) break;
  }
}

TEST(OutOfMemory, AStepThatFailsEndsThoseThatWereInIt) {
  int ended = 0;
  for (std::int64_t nth = 1; !testing::Test::HasFailure(); nth += 5) {
    SCOPED_TRACE(nth);
    const Swept swept = serve_with_failures(nth, 1, false);
    if (swept.failed == 0) break;
    EXPECT_LE(swept.requests, little_room.limits.sequences);
    ended = std::max(ended, swept.requests);
  }
  EXPECT_GT(ended, 1);
}

TEST(OutOfMemory, CancelsNeedNone) {
  FailingWorld world(true);
  const std::vector<Asked> all = requests_of_every_kind();
  for (const Asked& asked : all) world.submit(asked);
  for (int i = 0; i < 4; ++i) world.step();
  fail_allocations(1, 1'000'000);
  take_part(true);
  world.scheduler.cancel(3, 1);
  for (RequestId id = 1; id <= all.size(); id += 2) world.scheduler.cancel(id);
  world.scheduler.cancel_all();
  take_part(false);
  EXPECT_EQ(stop_failing(), 0);
  world.check();
  for (const Asked& asked : all) {
    EXPECT_TRUE(asked.sink->closed());
    EXPECT_FALSE(asked.sink->error);
    EXPECT_EQ(asked.sink->choices_finished, asked.request.choices);
  }
}

TEST(OutOfMemory, APauseThatAbortsNeedsNone) {
  FailingWorld world(true);
  const std::vector<Asked> all = requests_of_every_kind();
  for (const Asked& asked : all) world.submit(asked);
  for (int i = 0; i < 4; ++i) world.step();
  fail_allocations(1, 1'000'000);
  take_part(true);
  const Result<void> paused = world.scheduler.pause({.mode = PauseMode::abort});
  world.scheduler.forget_prefixes({});
  world.scheduler.resume({});
  take_part(false);
  std::ignore = stop_failing();
  EXPECT_TRUE(paused.ok());
  world.check();
  EXPECT_TRUE(world.scheduler.empty());
  EXPECT_EQ(world.scheduler.pages().cached(), 0);
  for (const Asked& asked : all) EXPECT_TRUE(asked.sink->closed());
}

TEST(OutOfMemory, LoadsAndUnloadsAreAlwaysAnswered) {
  for (std::int64_t nth = 1; !testing::Test::HasFailure(); ++nth) {
    SCOPED_TRACE(nth);
    FailingWorld world(true);
    world.store.put("d", 1, 9);
    world.store.put("replaced", 1, 10);
    std::vector<std::pair<int, bool>> answers(4);  // how many, and whether well
    const auto answer = [&](std::size_t index) {
      return [&answers, index](const Result<void>& result) {
        const Spared spared;
        ++answers[index].first;
        answers[index].second = result.ok();
        if (!result.ok()) {
          EXPECT_EQ(result.error().code(), ErrorCode::out_of_memory);
        }
      };
    };
    const AdapterSpec fresh{.name = "d", .path = "d"};
    const AdapterSpec replaced{.name = "a", .path = "replaced"};
    const std::vector<Residency::Answer> told = {answer(0), answer(1), answer(2), answer(3)};
    fail_allocations(nth);
    take_part(true);
    Residency& residency = world.scheduler.residency();
    residency.load(fresh, false, told[0]);
    residency.load(replaced, true, told[1]);
    for (int i = 0; i < 3; ++i) world.step();
    residency.unload("b", told[2]);
    for (int i = 0; i < 3; ++i) world.step();
    residency.unload("c", told[3]);
    for (int i = 0; i < 3; ++i) world.step();
    take_part(false);
    const std::int64_t failed = stop_failing();
    std::int64_t well = 0;
    for (const auto& [count, ok] : answers) {
      EXPECT_EQ(count, 1);
      well += ok ? 1 : 0;
    }
    EXPECT_GE(well, 4 - failed);
    EXPECT_EQ(residency.find("b") == nullptr, answers[2].second);
    EXPECT_EQ(residency.find("d") != nullptr, answers[0].second);
    if (failed == 0) break;
  }
}

// Takes part on the engine's thread.
class PartakingExecutor final : public FakeExecutor {
 public:
  using FakeExecutor::FakeExecutor;

  Result<void> step(std::span<const runner::Chunk> chunks, std::span<ChunkOutput> outputs,
                    FunctionRef<void()> meanwhile) override {
    take_part(true);
    return FakeExecutor::step(chunks, outputs, meanwhile);
  }
};

TEST(OutOfMemory, AnEngineAnswersEveryRequestAndServesOn) {
  PartakingExecutor executor(little_room.limits);
  FakeStore store(little_room.adapter_pages);
  const SteadyClock clock;
  FakeSamplers samplers;
  const auto engine = Engine::create(
      {.executor = &executor, .samplers = &samplers, .adapters = &store, .clock = &clock},
      {.validate = true});
  for (const char* name : {"a", "b", "c"}) {
    store.put(name, 1, static_cast<std::uint32_t>(name[0]));
    std::promise<void> loaded;
    engine->load_adapter({.name = name, .path = name}, false, [&](const Result<void>& result) {
      result.value();
      loaded.set_value();
    });
    motley::test::get(loaded, "the load is answered");
  }
  // Wherever the thread is by then.
  int ended = 0;
  for (std::int64_t nth = 1; nth < 1500 && !testing::Test::HasFailure(); nth += 7) {
    SCOPED_TRACE(nth);
    const std::vector<Asked> all = requests_of_every_kind();
    fail_allocations(nth, 1 + nth % 3);
    take_part(nth % 2 == 0);
    for (const Asked& asked : all) {
      Request request;
      {
        const Spared spared;
        request = asked.request;
      }
      const Result<RequestId> id = engine->submit(std::move(request), asked.sink);
      if (id.ok()) continue;
      const Spared spared;
      EXPECT_EQ(id.error().code(), ErrorCode::out_of_memory);
      asked.sink->take(id.error());
    }
    take_part(false);
    for (const Asked& asked : all) asked.sink->wait();
    stop_failing();
    for (const Asked& asked : all) {
      if (asked.sink->error) {
        EXPECT_EQ(asked.sink->error->code(), ErrorCode::out_of_memory);
        ++ended;
        continue;
      }
      std::vector<lora::Mix::KeyPart> key;
      for (const lora::ScaledAdapter& each : asked.request.adapters)
        key.push_back({store.on_disk(each.name).version, each.scale});
      std::ranges::sort(key);
      for (int choice = 0; choice < asked.request.choices; ++choice)
        EXPECT_EQ(asked.sink->tokens[static_cast<std::size_t>(choice)],
                  expected_choice(asked.request, key, choice, little_room.limits.vocabulary,
                                  engine->max_sequence_tokens()));
    }
    EXPECT_TRUE(engine->health().ok());
  }
  EXPECT_GT(ended, 20);
  engine->shutdown(Engine::Drain::finish);
  EXPECT_EQ(engine->stats().broken_invariants, 0);
  EXPECT_EQ(engine->stats().kv_pages_used, 0);
}

// Two replicas whose threads take part.
class PartakingReplicas {
 public:
  PartakingReplicas() {
    put(first_content);
    EXPECT_TRUE(load(false).ok());
    for (Part& part : parts_) EXPECT_EQ(answer_of(part), expected(part));
  }

  void put(std::uint32_t seed) {
    for (Part& part : parts_) part.store.put("a", 1, seed);
  }
  // Answered while allocations fail, here too if `here` says so.
  Result<void> load(bool here) {
    const AdapterSpec spec{.name = "a", .path = "a"};
    std::promise<Result<void>> answer;
    const Engine::Done done = [&answer](Result<void> result) {
      const Spared spared;
      answer.set_value(std::move(result));
    };
    take_part(here);
    engine_.load_adapter(spec, true, done);
    take_part(false);
    return motley::test::get(answer, "the load is answered");
  }
  // Each replica's answer is that of this content.
  void expect_content(std::uint32_t seed) {
    put(seed);
    for (Part& part : parts_) EXPECT_EQ(answer_of(part), expected(part)) << "content " << seed;
    EXPECT_TRUE(engine_.adapter("a").has_value());
  }

  static constexpr std::uint32_t first_content = 1;

 private:
  struct Part {
    PartakingExecutor executor{little_room.limits};
    FakeStore store{little_room.adapter_pages};
    SteadyClock clock;
    FakeSamplers samplers;
    std::unique_ptr<Replica> engine = Replica::create(
        {.executor = &executor, .samplers = &samplers, .adapters = &store, .clock = &clock},
        // The store works when the engine asks for results, which it does this often.
        {.adapter_patience = std::chrono::milliseconds(8), .validate = true});
  };

  static std::vector<std::int32_t> answer_of(Part& part) {
    const Asked asked = ask_for(request);
    part.engine->submit(request, asked.sink).value();
    asked.sink->wait();
    return asked.sink->tokens.front();
  }
  static std::vector<std::int32_t> expected(const Part& part) {
    const std::vector<lora::Mix::KeyPart> key = {{part.store.on_disk("a").version, 1}};
    return expected_choice(request, key, 0, little_room.limits.vocabulary,
                           part.engine->max_sequence_tokens());
  }

  inline static const Request request{
      .tokens = prompt(9, 1), .adapters = {{"a", 1}}, .max_tokens = 4};
  std::array<Part, 2> parts_;
  ReplicatedEngine engine_{{parts_[0].engine.get(), parts_[1].engine.get()}};
};

TEST(OutOfMemory, NewContentEntersAllReplicasOrTheOldOneServesOnInAll) {
  PartakingReplicas replicas;
  std::uint32_t content = PartakingReplicas::first_content;
  int refused = 0;
  for (std::int64_t nth = 1; nth < 200 && !testing::Test::HasFailure(); ++nth) {
    SCOPED_TRACE(nth);
    replicas.put(content + 1);
    // Wherever the threads are by then.
    fail_allocations(nth, 1 + nth % 3);
    const Result<void> loaded = replicas.load(nth % 2 == 0);
    stop_failing();
    if (loaded.ok()) {
      ++content;
    } else {
      EXPECT_EQ(loaded.error().code(), ErrorCode::out_of_memory);
      ++refused;
    }
    replicas.expect_content(content);
    replicas.put(++content);
    EXPECT_TRUE(replicas.load(false).ok()) << "it is loaded once there is memory";
    replicas.expect_content(content);
  }
  EXPECT_GT(refused, 20);
}

}  // namespace
}  // namespace motley::engine::test
