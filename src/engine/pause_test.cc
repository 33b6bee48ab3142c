// Pauses of an engine with its thread, and of several replicas.

#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/test_waits.h"
#include "engine/replicas/replicated_engine.h"
#include "engine/test_world.h"

namespace motley::engine::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Steps wait while they are held, and fail from when a test says so.
class PausableExecutor final : public FakeExecutor {
 public:
  using FakeExecutor::FakeExecutor;

  Result<void> step(std::span<const runner::Chunk> chunks, std::span<ChunkOutput> outputs,
                    FunctionRef<void()> meanwhile) override {
    // What came of the step before is delivered before the wait.
    meanwhile();
    monitor_.wait("the test lets steps run", [this] { return allowed_ != 0; });
    monitor_.change([this] { allowed_ = std::max(allowed_ - 1, std::int64_t{-1}); });
    if (fails) return Error(ErrorCode::io, "the device is gone");
    return FakeExecutor::step(chunks, outputs, [] {});
  }
  void hold() { allow(0); }
  // So many steps, and then they wait.
  void allow(std::int64_t steps) {
    monitor_.change([this, steps] { allowed_ = steps; });
  }
  void release() {
    monitor_.change([this] { allowed_ = -1; });
  }
  std::atomic<bool> fails = false;

 private:
  motley::test::Monitor monitor_;
  std::int64_t allowed_ = -1;  // steps; -1: all
};

// Samplers of prompts that begin with 96 are ready when the test says so.
class LateSamplers final : public FakeSamplers {
 public:
  Abandon prepare(const Request& request, Prepared done) override {
    if (request.tokens[0] != 96) return FakeSamplers::prepare(request, std::move(done));
    late_.push_back(std::move(done));
    return [this] { abandoned = true; };
  }
  void hand_out() {
    for (Prepared& done : std::exchange(late_, {}))
      done(std::unique_ptr<Sampler>(std::make_unique<FakeSampler>(0)));
  }
  std::atomic<bool> abandoned = false;

 private:
  std::vector<Prepared> late_;
};

struct PauseWorld {
  explicit PauseWorld(const WorldOptions& options = {})
      : executor(options.limits), store(options.adapter_pages) {
    engine = Replica::create(
        {.executor = &executor, .samplers = &samplers, .adapters = &store, .clock = &clock},
        {.validate = true});
  }
  ~PauseWorld() { executor.release(); }

  std::vector<std::int32_t> expected(const Request& request) const {
    std::vector<lora::Mix::KeyPart> key;
    for (const lora::ScaledAdapter& each : request.adapters)
      key.push_back({store.on_disk(each.name).version, each.scale});
    return expected_choice(request, key, 0, executor.limits().vocabulary,
                           engine->max_sequence_tokens());
  }

  SteadyClock clock;
  PausableExecutor executor;
  LateSamplers samplers;
  FakeStore store;
  std::unique_ptr<Replica> engine;
};

// An answer that a test waits for.
class Answered {
 public:
  Engine::Done done() {
    return [promise = promise_](Result<void> result) { promise->set_value(std::move(result)); };
  }
  bool has_come() const {
    return answer_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }
  Result<void> get() { return motley::test::get(answer_, "the call is answered"); }

 private:
  std::shared_ptr<std::promise<Result<void>>> promise_ =
      std::make_shared<std::promise<Result<void>>>();
  std::future<Result<void>> answer_ = promise_->get_future();
};

Result<void> pause(Engine& engine, PauseMode mode, const std::string& adapter = {}) {
  Answered answer;
  engine.pause({.mode = mode, .adapter = adapter}, answer.done());
  return answer.get();
}
Result<void> resume(Engine& engine, const std::string& adapter = {}) {
  Answered answer;
  engine.resume(adapter, answer.done());
  return answer.get();
}
Result<void> load(Engine& engine, const std::string& name, bool replace = false) {
  Answered answer;
  engine.load_adapter({.name = name, .path = name}, replace, answer.done());
  return answer.get();
}
ErrorCode code_of(const Result<void>& result) {
  return result.ok() ? ErrorCode::internal : result.error().code();
}

std::shared_ptr<WaitingSink> submit(Engine& engine, const Request& request,
                                    RequestId* id = nullptr) {
  auto sink = std::make_shared<WaitingSink>(request.choices);
  const RequestId given = engine.submit(request, sink).value();
  if (id != nullptr) *id = given;
  return sink;
}

// Long enough to be in the middle when a test looks.
Request long_request() { return {.tokens = prompt(5), .max_tokens = 200}; }
// Has its first tokens, and is in a step that waits for release().
std::shared_ptr<WaitingSink> begin_long(PauseWorld& world) {
  world.executor.allow(3);
  auto sink = submit(*world.engine, long_request());
  sink->wait_for_tokens(2);
  return sink;
}
// The pause comes during that step.
Result<void> pause_in_step(PauseWorld& world, PauseMode mode) {
  Answered answer;
  world.engine->pause({.mode = mode}, answer.done());
  world.executor.release();
  return answer.get();
}
// Its sampler is late.
Request late_request() { return {.tokens = {96, 1, 2}, .max_tokens = 3}; }

TEST(PausedEngine, AbortAnswersWhenAllHaveEndedAndRefusesNewOnesUntilResume) {
  PauseWorld world;
  Engine& engine = *world.engine;
  const auto running = begin_long(world);
  EXPECT_TRUE(pause_in_step(world, PauseMode::abort).ok());
  ASSERT_TRUE(running->closed());
  EXPECT_EQ(running->wait().reasons[0], FinishReason::aborted);
  EXPECT_GE(running->tokens(), 3);
  EXPECT_LT(running->tokens(), 200);
  EXPECT_TRUE(engine.paused().all());
  EXPECT_EQ(engine.stats().running, 0);
  EXPECT_EQ(engine.stats().kv_pages_cached, 0);
  const auto refused = engine.submit(long_request(), std::make_shared<WaitingSink>());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::unavailable);
  EXPECT_NE(refused.error().message().find("paused"), std::string::npos);
  EXPECT_TRUE(engine.health().ok());
  EXPECT_TRUE(pause(engine, PauseMode::abort).ok());
  EXPECT_TRUE(resume(engine).ok());
  EXPECT_TRUE(resume(engine).ok());
  EXPECT_FALSE(engine.paused().all());
  const Request next{.tokens = prompt(9), .max_tokens = 4};
  EXPECT_EQ(submit(engine, next)->wait().tokens[0], world.expected(next));
}

TEST(PausedEngine, WaitAnswersWhenAllHaveRunToTheirEnd) {
  PauseWorld world;
  Engine& engine = *world.engine;
  const Request request{.tokens = prompt(5), .max_tokens = 9};
  world.executor.hold();
  const auto running = submit(engine, request);
  Answered answer;
  engine.pause({.mode = PauseMode::wait, .clears_cache = false}, answer.done());
  EXPECT_FALSE(engine.submit(request, std::make_shared<WaitingSink>()).ok());
  EXPECT_FALSE(answer.has_come());
  world.executor.release();
  EXPECT_TRUE(answer.get().ok());
  ASSERT_TRUE(running->closed());
  EXPECT_EQ(running->wait().tokens[0], world.expected(request));
  EXPECT_GT(engine.stats().kv_pages_cached, 0);
  EXPECT_TRUE(pause(engine, PauseMode::wait).ok());
  EXPECT_EQ(engine.stats().kv_pages_cached, 0);
}

// It was accepted before the pause, so it counts.
TEST(PausedEngine, ARequestWhoseSamplerIsPreparedIsWaitedForOrAborted) {
  for (const PauseMode mode : {PauseMode::wait, PauseMode::abort}) {
    PauseWorld world;
    const auto late = submit(*world.engine, late_request());
    Answered answer;
    world.engine->pause({.mode = mode}, answer.done());
    // The thread has seen the pause.
    Answered reset;
    world.engine->reset_prefix_cache(false, reset.done());
    reset.get().value();
    EXPECT_FALSE(answer.has_come());
    world.samplers.hand_out();
    EXPECT_TRUE(answer.get().ok());
    ASSERT_TRUE(late->closed());
    EXPECT_EQ(late->wait().reasons[0],
              mode == PauseMode::wait ? FinishReason::length : FinishReason::aborted);
  }
}

TEST(PausedEngine, KeptRequestsGoOnAndQueuedOnesBegin) {
  PauseWorld world;
  Engine& engine = *world.engine;
  world.store.put("a", 1, 1);
  const auto running = begin_long(world);
  EXPECT_TRUE(pause_in_step(world, PauseMode::keep).ok());
  const std::size_t had = running->tokens();
  const std::int64_t steps = world.executor.steps;
  ASSERT_TRUE(load(engine, "a").ok());
  const Request adapted{.tokens = prompt(4), .adapters = {{"a", 1}}, .max_tokens = 4};
  const auto queued = submit(engine, adapted);
  // The thread has seen both.
  EXPECT_TRUE(pause(engine, PauseMode::keep).ok());
  EXPECT_EQ(world.executor.steps, steps);
  EXPECT_EQ(running->tokens(), had);
  EXPECT_EQ(engine.stats().running, 1);
  EXPECT_EQ(engine.stats().waiting, 1);
  EXPECT_TRUE(resume(engine).ok());
  EXPECT_EQ(running->wait().tokens[0], world.expected(long_request()));
  EXPECT_EQ(queued->wait().tokens[0], world.expected(adapted));
}

TEST(PausedEngine, AnAdaptersPauseLeavesTheOthersAlone) {
  PauseWorld world;
  Engine& engine = *world.engine;
  world.store.put("a", 1, 1);
  ASSERT_TRUE(load(engine, "a").ok());
  EXPECT_EQ(code_of(pause(engine, PauseMode::keep, "b")), ErrorCode::not_found);
  ASSERT_TRUE(pause(engine, PauseMode::keep, "a").ok());
  EXPECT_FALSE(engine.paused().all());
  EXPECT_THAT(engine.paused().adapters(), ElementsAre("a"));
  const Request adapted{.tokens = prompt(4), .adapters = {{"a", 1}}, .max_tokens = 4};
  const auto kept = submit(engine, adapted);
  EXPECT_EQ(submit(engine, long_request())->wait().tokens[0], world.expected(long_request()));
  EXPECT_FALSE(kept->closed());
  EXPECT_TRUE(resume(engine).ok());
  EXPECT_THAT(engine.paused().adapters(), ElementsAre("a"));
  EXPECT_TRUE(resume(engine, "a").ok());
  EXPECT_EQ(kept->wait().tokens[0], world.expected(adapted));
  EXPECT_THAT(engine.paused().adapters(), IsEmpty());
}

TEST(PausedEngine, AResumeOrAKeepBreaksOffAWait) {
  PauseWorld world;
  Engine& engine = *world.engine;
  world.executor.hold();
  const auto running = submit(engine, long_request());
  Answered first;
  engine.pause({.mode = PauseMode::wait}, first.done());
  Answered kept;
  engine.pause({.mode = PauseMode::keep}, kept.done());
  Answered second;
  engine.pause({.mode = PauseMode::wait}, second.done());
  Answered resumed;
  engine.resume("", resumed.done());
  world.executor.release();
  EXPECT_EQ(code_of(first.get()), ErrorCode::conflict);
  EXPECT_EQ(code_of(second.get()), ErrorCode::conflict);
  EXPECT_TRUE(resumed.get().ok());
  EXPECT_EQ(running->wait().tokens[0], world.expected(long_request()));
}

TEST(PausedEngine, ShutsDownWithKeptRequestsRunToTheirEnd) {
  PauseWorld world;
  const auto running = begin_long(world);
  ASSERT_TRUE(pause_in_step(world, PauseMode::keep).ok());
  const auto queued = submit(*world.engine, {.tokens = prompt(3), .max_tokens = 2});
  world.engine->shutdown(Engine::Drain::finish);
  ASSERT_TRUE(running->closed() && queued->closed());
  EXPECT_EQ(running->wait().tokens[0], world.expected(long_request()));
  EXPECT_EQ(queued->wait().reasons[0], FinishReason::length);
  EXPECT_EQ(code_of(pause(*world.engine, PauseMode::keep)), ErrorCode::unavailable);
}

TEST(PausedEngine, ShutsDownWithKeptRequestsCancelled) {
  PauseWorld world;
  const auto running = begin_long(world);
  ASSERT_TRUE(pause_in_step(world, PauseMode::keep).ok());
  world.engine->shutdown(Engine::Drain::cancel);
  ASSERT_TRUE(running->closed());
  EXPECT_EQ(running->wait().reasons[0], FinishReason::cancelled);
}

TEST(PausedEngine, AFailedDeviceAnswersTheWait) {
  PauseWorld world;
  world.executor.hold();
  const auto running = submit(*world.engine, long_request());
  Answered answer;
  world.engine->pause({.mode = PauseMode::wait}, answer.done());
  world.executor.fails = true;
  world.executor.release();
  EXPECT_FALSE(answer.get().ok());
  EXPECT_TRUE(running->wait().error);
}

TEST(PausedEngine, AbortEndsOneRequestAlsoBeforeItHasASampler) {
  PauseWorld world;
  RequestId id = 0;
  world.executor.allow(3);
  const auto running = submit(*world.engine, long_request(), &id);
  running->wait_for_tokens(2);
  const auto other = submit(*world.engine, long_request());
  world.engine->abort(id);
  world.executor.release();
  EXPECT_EQ(running->wait().reasons[0], FinishReason::aborted);
  EXPECT_EQ(other->wait().reasons[0], FinishReason::length);
  world.engine->abort(id);
  const auto late = submit(*world.engine, late_request(), &id);
  world.engine->abort(id);
  world.samplers.hand_out();
  EXPECT_FALSE(world.samplers.abandoned);
  EXPECT_EQ(late->wait().reasons[0], FinishReason::aborted);
}

TEST(PausedEngine, AResetOfTheCacheIsAnsweredInAPauseToo) {
  PauseWorld world;
  Engine& engine = *world.engine;
  const Request request{.tokens = prompt(30), .max_tokens = 2};
  submit(engine, request)->wait();
  EXPECT_EQ(submit(engine, request)->wait().usage->cached_tokens, 28);
  Answered answer;
  engine.reset_prefix_cache(true, answer.done());
  EXPECT_TRUE(answer.get().ok());
  EXPECT_EQ(submit(engine, request)->wait().usage->cached_tokens, 0);
  ASSERT_TRUE(pause(engine, PauseMode::keep).ok());
  Answered paused;
  engine.reset_prefix_cache(false, paused.done());
  EXPECT_TRUE(paused.get().ok());
}

class PausedReplicas : public testing::Test {
 protected:
  PausedReplicas() : engine_({worlds_[0].engine.get(), worlds_[1].engine.get()}) {}

  // In both replicas, in steps that wait for the release.
  std::vector<std::shared_ptr<WaitingSink>> begin_four() {
    for (PauseWorld& each : worlds_) each.executor.allow(3);
    std::vector<std::shared_ptr<WaitingSink>> begun;
    for (int i = 0; i < 4; ++i) begun.push_back(submit(engine_, long_request()));
    return begun;
  }
  Result<void> pause_in_steps(PauseMode mode) {
    Answered answer;
    engine_.pause({.mode = mode}, answer.done());
    for (PauseWorld& each : worlds_) each.executor.release();
    return answer.get();
  }

  PauseWorld worlds_[2];
  ReplicatedEngine engine_;
};

TEST_F(PausedReplicas, PauseAndResumeTogether) {
  const auto running = begin_four();
  ASSERT_TRUE(pause_in_steps(PauseMode::keep).ok());
  EXPECT_TRUE(engine_.paused().all());
  EXPECT_EQ(worlds_[0].engine->status({}).sequences, 2);
  EXPECT_EQ(worlds_[1].engine->status({}).sequences, 2);
  const std::int64_t steps = worlds_[0].executor.steps + worlds_[1].executor.steps;
  std::vector<std::shared_ptr<WaitingSink>> queued;
  for (int i = 0; i < 4; ++i) queued.push_back(submit(engine_, long_request()));
  ASSERT_TRUE(pause(engine_, PauseMode::keep).ok());
  EXPECT_EQ(worlds_[0].executor.steps + worlds_[1].executor.steps, steps);
  ASSERT_TRUE(resume(engine_).ok());
  EXPECT_FALSE(engine_.paused().all());
  queued.insert(queued.end(), running.begin(), running.end());
  for (const auto& each : queued)
    EXPECT_EQ(each->wait().tokens[0], worlds_[0].expected(long_request()));
}

TEST_F(PausedReplicas, AbortEndsTheRequestsOfAll) {
  const auto running = begin_four();
  RequestId id = 0;
  const auto one = submit(engine_, long_request(), &id);
  engine_.abort(id);
  ASSERT_TRUE(pause_in_steps(PauseMode::abort).ok());
  EXPECT_EQ(one->wait().reasons[0], FinishReason::aborted);
  for (const auto& each : running) {
    ASSERT_TRUE(each->closed());
    EXPECT_EQ(each->wait().reasons[0], FinishReason::aborted);
  }
  EXPECT_FALSE(engine_.submit(long_request(), std::make_shared<WaitingSink>()).ok());
}

TEST_F(PausedReplicas, AnAdapterMustBeThereInAll) {
  for (PauseWorld& each : worlds_) each.store.put("a", 1, 1);
  EXPECT_EQ(code_of(pause(engine_, PauseMode::wait, "a")), ErrorCode::not_found);
  ASSERT_TRUE(load(engine_, "a").ok());
  EXPECT_TRUE(pause(engine_, PauseMode::wait, "a").ok());
  EXPECT_THAT(engine_.paused().adapters(), ElementsAre("a"));
  EXPECT_FALSE(
      engine_.submit({.tokens = prompt(3), .adapters = {{"a", 1}}}, std::make_shared<WaitingSink>())
          .ok());
  EXPECT_TRUE(load(engine_, "a", true).ok());
  EXPECT_TRUE(resume(engine_, "a").ok());
}

TEST_F(PausedReplicas, ALostReplicaDoesNotHoldUpTheOthers) {
  worlds_[0].executor.fails = true;
  const auto failed = submit(engine_, long_request());
  const auto other = submit(engine_, long_request());
  failed->wait();
  other->wait();
  ASSERT_EQ(engine_.lost_replicas().size(), 1);
  EXPECT_TRUE(pause(engine_, PauseMode::abort).ok());
  EXPECT_TRUE(engine_.paused().all());
  EXPECT_TRUE(resume(engine_).ok());
  Answered reset;
  engine_.reset_prefix_cache(false, reset.done());
  EXPECT_TRUE(reset.get().ok());
}

TEST_F(PausedReplicas, ShutDownWithKeptRequestsRunToTheirEnd) {
  const auto running = begin_four();
  ASSERT_TRUE(pause_in_steps(PauseMode::keep).ok());
  engine_.shutdown(Engine::Drain::finish);
  for (const auto& each : running)
    EXPECT_EQ(each->wait().tokens[0], worlds_[0].expected(long_request()));
  EXPECT_FALSE(pause(engine_, PauseMode::keep).ok());
}

}  // namespace
}  // namespace motley::engine::test
