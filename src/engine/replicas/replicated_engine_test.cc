#include "engine/replicas/replicated_engine.h"

#include <atomic>
#include <future>
#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/test_waits.h"
#include "engine/test_world.h"

namespace motley::engine::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Its steps fail, or wait, from when a test says so.
class FaultyExecutor final : public FakeExecutor {
 public:
  using FakeExecutor::FakeExecutor;

  Result<void> step(std::span<const runner::Chunk> chunks, std::span<ChunkOutput> outputs,
                    FunctionRef<void()> meanwhile) override {
    monitor_.wait("the test releases the steps", [this] { return !held_; });
    if (!fails) return FakeExecutor::step(chunks, outputs, meanwhile);
    return Error(ErrorCode::io, "the device is gone");
  }
  // From now on steps wait until they are released.
  void hold() {
    monitor_.change([this] { held_ = true; });
  }
  void release() {
    monitor_.change([this] { held_ = false; });
  }
  std::atomic<bool> fails = false;

 private:
  motley::test::Monitor monitor_;
  bool held_ = false;
};

// A replica on fakes.
struct ReplicaWorld {
  explicit ReplicaWorld(const WorldOptions& options, std::int64_t max_queue)
      : executor(options.limits), store(options.adapter_pages) {
    engine = Replica::create(
        {.executor = &executor, .samplers = &samplers, .adapters = &store, .clock = &clock},
        {.max_queue = max_queue, .validate = true});
  }

  SteadyClock clock;
  FaultyExecutor executor;
  FakeSamplers samplers;
  FakeStore store;
  std::unique_ptr<Replica> engine;
};

class ReplicatedEngineTest : public testing::Test {
 protected:
  void make(std::size_t count, const WorldOptions& options = {}, std::int64_t max_queue = 1024) {
    std::vector<Replica*> engines;
    for (std::size_t i = 0; i < count; ++i) {
      worlds_.push_back(std::make_unique<ReplicaWorld>(options, max_queue));
      engines.push_back(worlds_.back()->engine.get());
    }
    engine_ = std::make_unique<ReplicatedEngine>(std::move(engines));
  }

  using Answer = std::future<Result<void>>;
  static Engine::Done promised(Answer& answer) {
    const auto promise = std::make_shared<std::promise<Result<void>>>();
    answer = promise->get_future();
    return [promise](Result<void> result) { promise->set_value(std::move(result)); };
  }
  Answer begin_load(const std::string& name, bool replace = false) {
    Answer answer;
    Engine::Done done = promised(answer);
    engine_->load_adapter({.name = name, .path = name}, replace, std::move(done));
    return answer;
  }
  Result<void> load(const std::string& name, bool replace = false) {
    return motley::test::get(begin_load(name, replace), "the load is answered");
  }
  Answer begin_unload(const std::string& name) {
    Answer answer;
    engine_->unload_adapter(name, promised(answer));
    return answer;
  }
  void put(const std::string& path, std::uint32_t seed) {
    for (const auto& world : worlds_) world->store.put(path, 1, seed);
  }
  static std::vector<std::string> names_of(const Engine& engine) {
    std::vector<std::string> names;
    for (const AdapterInfo& each : engine.adapters()) names.push_back(each.name);
    return names;
  }

  static std::shared_ptr<WaitingSink> submit(Engine& engine, const Request& request,
                                             RequestId* id = nullptr) {
    auto sink = std::make_shared<WaitingSink>();
    const auto accepted = engine.submit(request, sink);
    EXPECT_TRUE(accepted.ok()) << (accepted.ok() ? "" : accepted.error().message());
    if (!accepted.ok()) return nullptr;
    if (id != nullptr) *id = *accepted;
    return sink;
  }
  static Error refusal(Engine& engine, const Request& request) {
    const auto accepted = engine.submit(request, std::make_shared<WaitingSink>());
    if (accepted.ok()) return Error(ErrorCode::internal, "accepted");
    return accepted.error();
  }
  std::vector<std::int32_t> expected(const Request& request,
                                     std::optional<lora::ContentVersion> version = {}) const {
    std::vector<lora::Mix::KeyPart> key;
    for (const lora::ScaledAdapter& each : request.adapters)
      key.push_back(
          {version ? *version : worlds_[0]->store.on_disk(each.name).version, each.scale});
    return expected_choice(request, key, 0, worlds_[0]->executor.limits().vocabulary,
                           engine_->max_sequence_tokens());
  }
  // A request fails on it, which ends the replica.
  void break_replica(std::size_t i) {
    worlds_[i]->executor.fails = true;
    const auto sink = submit(*worlds_[i]->engine, {.tokens = prompt(3), .max_tokens = 2});
    ASSERT_NE(sink, nullptr);
    EXPECT_THAT(sink->wait().error.value().message(), HasSubstr("the device is gone"));
  }

  std::vector<std::unique_ptr<ReplicaWorld>> worlds_;
  std::unique_ptr<ReplicatedEngine> engine_;  // ends before them
};

TEST_F(ReplicatedEngineTest, GivesTheAnswersOfOneEngineFromAll) {
  make(3);
  put("a", 1);
  put("b", 2);
  ASSERT_TRUE(load("a").ok());
  ASSERT_TRUE(load("b").ok());
  std::vector<std::pair<Request, std::shared_ptr<WaitingSink>>> asked;
  for (int i = 0; i < 60; ++i) {
    Request request{.tokens = prompt(5 + i % 20, i), .max_tokens = 6};
    if (i % 3 > 0) request.adapters = {{i % 3 == 1 ? "a" : "b", 1}};
    auto sink = submit(*engine_, request);
    asked.emplace_back(std::move(request), std::move(sink));
  }
  for (const auto& [request, sink] : asked) EXPECT_EQ(sink->wait().tokens[0], expected(request));
  engine_->shutdown(Engine::Drain::finish);
  const Stats stats = engine_->stats();
  EXPECT_EQ(stats.requests, 60);
  EXPECT_EQ(stats.generated_tokens, 360);
  EXPECT_EQ(stats.time_to_first_token.count, 60);
  ASSERT_EQ(stats.replicas.size(), 3);
  std::uint64_t sum = 0;
  for (const Stats& each : stats.replicas) {
    EXPECT_GT(each.requests, 0);
    EXPECT_FALSE(each.stopped);
    sum += each.requests;
  }
  EXPECT_EQ(sum, 60);
  ASSERT_EQ(stats.adapters.size(), 2);
  EXPECT_EQ(stats.adapters[1].name, "b");
  EXPECT_EQ(refusal(*engine_, {.tokens = prompt(3)}).code(), ErrorCode::unavailable);
}

TEST_F(ReplicatedEngineTest, ALoadReachesAllOrNone) {
  make(3);
  put("a", 1);
  worlds_[2]->store.remove("a");
  const Result<void> refused = load("a");
  EXPECT_EQ(refused.error().code(), ErrorCode::not_found);
  EXPECT_THAT(refused.error().message(), HasSubstr("no such folder"));
  EXPECT_THAT(names_of(*engine_), IsEmpty());
  for (const auto& world : worlds_) EXPECT_THAT(names_of(*world->engine), IsEmpty());
  const Request request{.tokens = prompt(5), .adapters = {{"a", 1}}, .max_tokens = 4};
  EXPECT_EQ(refusal(*engine_, request).code(), ErrorCode::not_found);

  worlds_[2]->store.put("a", 1, 1);
  ASSERT_TRUE(load("a").ok());
  EXPECT_THAT(names_of(*engine_), ElementsAre("a"));
  for (const auto& world : worlds_) EXPECT_THAT(names_of(*world->engine), ElementsAre("a"));
  EXPECT_EQ(submit(*engine_, request)->wait().tokens[0], expected(request));
  const Result<void> again = load("a");
  EXPECT_EQ(again.error().code(), ErrorCode::invalid_argument);
  EXPECT_THAT(again.error().message(), HasSubstr("it has already been loaded"));
  EXPECT_THAT(names_of(*engine_), ElementsAre("a"));
}

TEST_F(ReplicatedEngineTest, NewContentReachesAllOrNone) {
  make(2);
  put("a", 1);
  ASSERT_TRUE(load("a").ok());
  const lora::ContentVersion old = worlds_[0]->store.on_disk("a").version;
  const Request request{.tokens = prompt(5), .adapters = {{"a", 1}}, .max_tokens = 4};
  // So that all have its bytes.
  for (const auto& world : worlds_) submit(*world->engine, request)->wait();

  worlds_[0]->store.put("a", 1, 9);
  worlds_[1]->store.remove("a");
  EXPECT_EQ(load("a", true).error().code(), ErrorCode::not_found);
  for (const auto& world : worlds_)
    EXPECT_EQ(submit(*world->engine, request)->wait().tokens[0], expected(request, old));

  worlds_[1]->store.put("a", 1, 9);
  ASSERT_TRUE(load("a", true).ok());
  for (const auto& world : worlds_)
    EXPECT_EQ(submit(*world->engine, request)->wait().tokens[0], expected(request));
}

TEST_F(ReplicatedEngineTest, UnloadsFromAllWhenTheLastRequestHasEnded) {
  make(2);
  put("a", 1);
  ASSERT_TRUE(load("a").ok());
  for (const auto& world : worlds_) world->executor.hold();
  const Request request{.tokens = prompt(5), .adapters = {{"a", 1}}, .max_tokens = 4};
  const auto running = submit(*engine_, request);
  Answer unloaded = begin_unload("a");
  EXPECT_EQ(refusal(*engine_, request).code(), ErrorCode::not_found);
  EXPECT_EQ(motley::test::get(begin_unload("a"), "the unload is answered").error().code(),
            ErrorCode::not_found);
  const Result<void> meanwhile = load("a");
  EXPECT_EQ(meanwhile.error().code(), ErrorCode::busy);
  EXPECT_THAT(meanwhile.error().message(), HasSubstr("it is being unloaded"));
  for (const auto& world : worlds_) world->executor.release();
  EXPECT_EQ(running->wait().tokens[0], expected(request));
  EXPECT_TRUE(motley::test::get(unloaded, "the unload is answered").ok());
  for (const auto& world : worlds_) EXPECT_THAT(names_of(*world->engine), IsEmpty());
  EXPECT_TRUE(load("a").ok());
}

TEST_F(ReplicatedEngineTest, AnAdapterIsFoundByNameWithTheSumsOverReplicas) {
  make(2);
  put("a", 1);
  put("b", 2);
  EXPECT_FALSE(engine_->adapter("a").has_value());
  ASSERT_TRUE(load("a").ok());
  ASSERT_TRUE(load("b").ok());
  const AdapterInfo found = engine_->adapter("a").value();
  EXPECT_EQ(found.name, "a");
  EXPECT_EQ(found.pages, 2) << "one of each replica";
  EXPECT_FALSE(engine_->adapter("c").has_value());
}

TEST_F(ReplicatedEngineTest, OneNameIsLoadedOnceAtATime) {
  make(2);
  put("a", 1);
  worlds_[1]->store.automatic = false;
  Answer first = begin_load("a");
  const Result<void> second = load("a");
  EXPECT_EQ(second.error().code(), ErrorCode::busy);
  EXPECT_THAT(second.error().message(), HasSubstr("it is being loaded"));
  // Read by one replica only, it can't be named yet.
  EXPECT_THAT(names_of(*engine_), IsEmpty());
  worlds_[1]->store.automatic = true;
  submit(*worlds_[1]->engine, {.tokens = prompt(3), .max_tokens = 1})->wait();
  EXPECT_TRUE(motley::test::get(first, "the first load is answered").ok());
  EXPECT_THAT(names_of(*engine_), ElementsAre("a"));
}

TEST_F(ReplicatedEngineTest, AFailedDeviceIsThatReplicasAlone) {
  make(2);
  put("a", 1);
  put("b", 2);
  ASSERT_TRUE(load("a").ok());
  for (const auto& world : worlds_) world->executor.hold();
  worlds_[0]->executor.fails = true;
  const Request request{.tokens = prompt(7), .max_tokens = 5};
  std::vector<std::shared_ptr<WaitingSink>> sinks;
  for (int i = 0; i < 8; ++i) sinks.push_back(submit(*engine_, request));
  for (const auto& world : worlds_) world->executor.release();
  int failed = 0;
  for (const auto& sink : sinks) {
    const MemorySink& memory = sink->wait();
    if (memory.error) {
      ++failed;
      EXPECT_THAT(memory.error->message(), HasSubstr("the device is gone"));
    } else {
      EXPECT_EQ(memory.tokens[0], expected(request));
    }
  }
  EXPECT_EQ(failed, 4);
  EXPECT_TRUE(engine_->health().ok());
  const auto lost = engine_->lost_replicas();
  ASSERT_EQ(lost.size(), 1);
  EXPECT_EQ(lost[0].replica, 0);
  EXPECT_THAT(lost[0].error.message(), HasSubstr("the device is gone"));
  EXPECT_TRUE(engine_->stats().replicas[0].stopped);
  EXPECT_FALSE(engine_->stats().replicas[1].stopped);

  // The other serves on, adapters are loaded and unloaded there.
  const Request with_adapter{.tokens = prompt(7), .adapters = {{"a", 1}}, .max_tokens = 5};
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(submit(*engine_, with_adapter)->wait().tokens[0], expected(with_adapter));
  EXPECT_TRUE(load("b").ok());
  EXPECT_TRUE(motley::test::get(begin_unload("a"), "the unload is answered").ok());
  EXPECT_THAT(names_of(*engine_), ElementsAre("b"));

  // With the last one the server is lost.
  break_replica(1);
  EXPECT_THAT(engine_->health().error().message(), HasSubstr("the device is gone"));
  EXPECT_THAT(refusal(*engine_, request).message(), HasSubstr("the device is gone"));
  EXPECT_EQ(load("a").error().code(), ErrorCode::io);
}

TEST_F(ReplicatedEngineTest, ALoadEndsWithoutAReplicaThatIsLostMeanwhile) {
  make(2);
  put("a", 1);
  worlds_[1]->store.automatic = false;
  Answer loaded = begin_load("a");
  break_replica(1);
  EXPECT_TRUE(motley::test::get(loaded, "the load is answered").ok());
  const Request request{.tokens = prompt(5), .adapters = {{"a", 1}}, .max_tokens = 4};
  EXPECT_EQ(submit(*engine_, request)->wait().tokens[0], expected(request));
}

TEST_F(ReplicatedEngineTest, CancelsWhereTheRequestRuns) {
  make(2);
  std::vector<std::shared_ptr<WaitingSink>> sinks;
  std::vector<RequestId> ids(4);
  for (const auto& world : worlds_) world->executor.hold();
  for (RequestId& id : ids)
    sinks.push_back(submit(*engine_, {.tokens = prompt(5), .max_tokens = 200}, &id));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (i % 2 == 0)
      engine_->cancel(ids[i]);
    else
      engine_->cancel(ids[i], 0, {});
  }
  for (const auto& world : worlds_) world->executor.release();
  for (const auto& sink : sinks) EXPECT_EQ(sink->wait().reasons[0], FinishReason::cancelled);
  EXPECT_EQ(engine_->stats().replicas.size(), 2);
}

TEST_F(ReplicatedEngineTest, RefusesWhenAllQueuesAreFull) {
  WorldOptions options;
  options.limits.sequences = 1;
  make(2, options, 1);
  for (const auto& world : worlds_) world->executor.hold();
  const Request request{.tokens = prompt(5), .max_tokens = 3};
  std::vector<std::shared_ptr<WaitingSink>> sinks;
  for (int i = 0; i < 4; ++i) sinks.push_back(submit(*engine_, request));
  EXPECT_EQ(refusal(*engine_, request).code(), ErrorCode::busy);
  EXPECT_EQ(engine_->stats().refused_queue, 1);
  for (const auto& world : worlds_) world->executor.release();
  for (const auto& sink : sinks) EXPECT_EQ(sink->wait().tokens[0], expected(request));
}

}  // namespace
}  // namespace motley::engine::test
