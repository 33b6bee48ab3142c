#include "server/shared_loads.h"

#include <algorithm>
#include <deque>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "engine/test_world.h"

namespace motley::server {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Loads end when the test answers them, in their order.
class LoadingEngine final : public engine::Engine {
 public:
  struct Load {
    engine::AdapterSpec spec;
    bool replace = false;
    Done done;
  };

  void load_adapter(engine::AdapterSpec spec, bool replace, Done done) override {
    if (stopped_) return done(Error(ErrorCode::unavailable, "it is shutting down"));
    const bool is_under_way = std::ranges::any_of(
        under_way, [&](const Load& each) { return each.spec.name == spec.name; });
    if (is_under_way) return done(Error(ErrorCode::busy, "it is being loaded"));
    if (names_.contains(spec.name) && !replace)
      return done(Error(ErrorCode::invalid_argument, "it has already been loaded"));
    ++begun;
    under_way.push_back({std::move(spec), replace, std::move(done)});
  }
  void answer(Result<void> result) {
    const Load first = std::move(under_way.front());
    under_way.pop_front();
    if (result.ok()) names_.insert(first.spec.name);
    first.done(std::move(result));
  }
  void unload_adapter(std::string name, Done done) override {
    names_.erase(name);
    done({});
  }
  std::vector<engine::AdapterInfo> adapters() const override {
    std::vector<engine::AdapterInfo> list;
    for (const std::string& name : names_) list.push_back({.name = name});
    return list;
  }
  void shutdown(Drain) override {
    stopped_ = true;
    while (!under_way.empty()) answer(Error(ErrorCode::unavailable, "it is shutting down"));
  }

  Result<engine::RequestId> submit(engine::Request, std::shared_ptr<engine::EventSink>) override {
    return Error(ErrorCode::internal, "no requests here");
  }
  void cancel(engine::RequestId) override {}
  void cancel(engine::RequestId, int, std::optional<std::int64_t>) override {}
  void abort(engine::RequestId) override {}
  void pause(engine::Pause, Done done) override { done({}); }
  void resume(std::string, Done done) override { done({}); }
  engine::Pauses paused() const override { return {}; }
  void reset_prefix_cache(bool, Done done) override { done({}); }
  engine::Stats stats() const override { return {}; }
  std::int64_t max_sequence_tokens() const override { return 0; }
  Result<void> health() const override { return {}; }

  std::deque<Load> under_way;
  int begun = 0;

 private:
  std::set<std::string> names_;
  bool stopped_ = false;
};

// The answers to requests, in the order in which they come.
class SharedLoadsTest : public testing::Test {
 protected:
  static engine::AdapterSpec spec(const std::string& name, const std::string& folder = "dir") {
    return {.name = name, .path = folder};
  }
  engine::Engine::Done note(const std::string& who) {
    return [this, who](const Result<void>& result) {
      answers.push_back(result.ok() ? who : cat(who, ": ", result.error().what()));
    };
  }
  void request(const std::string& name, const std::string& who) {
    loads.load(spec(name), note(who));
  }

  LoadingEngine engine;
  test::ScriptedClock clock;
  std::vector<std::string> loaded;
  std::vector<std::string> answers;
  SharedLoads loads{engine, [this](const std::string& name) { loaded.push_back(name); }, &clock};
};

TEST_F(SharedLoadsTest, RequestsForOneNameShareOneLoad) {
  request("poet", "1");
  request("poet", "2");
  request("cynic", "3");
  request("poet", "4");
  EXPECT_EQ(engine.begun, 2);
  EXPECT_THAT(answers, IsEmpty());
  engine.answer({});
  EXPECT_THAT(answers, ElementsAre("1", "2", "4"));
  EXPECT_THAT(loaded, ElementsAre("poet"));
  engine.answer({});
  EXPECT_THAT(answers, ElementsAre("1", "2", "4", "3"));
  EXPECT_THAT(loaded, ElementsAre("poet", "cynic"));
}

TEST_F(SharedLoadsTest, AnAdapterThatHasBeenLoadedMeanwhileIsNoError) {
  engine.load_adapter(spec("poet"), false, [](const Result<void>&) {});
  engine.answer({});
  request("poet", "1");
  EXPECT_THAT(answers, ElementsAre("1"));
  EXPECT_THAT(loaded, IsEmpty());
}

TEST_F(SharedLoadsTest, AnErrorOfFilesIsRepeatedForAWhileWithoutReadingThem) {
  request("poet", "1");
  request("poet", "2");
  engine.answer(Error(ErrorCode::bad_file, "half a file"));
  EXPECT_THAT(answers, ElementsAre("1: half a file", "2: half a file"));
  clock.advance(SharedLoads::pause - Duration(1));
  request("poet", "3");
  EXPECT_EQ(engine.begun, 1);
  EXPECT_EQ(answers.back(), "3: half a file");
  request("cynic", "4");
  EXPECT_EQ(engine.begun, 2) << "another name is read";
  engine.answer({});
  // The pause begins with the failure, not with its last repetition.
  clock.advance(Duration(1));
  request("poet", "5");
  EXPECT_EQ(engine.begun, 3);
  engine.answer({});
  EXPECT_EQ(answers.back(), "5");
  EXPECT_THAT(loaded, ElementsAre("cynic", "poet"));
}

TEST_F(SharedLoadsTest, ErrorsThatAreNotOfFilesAreNotRepeated) {
  int begun = 0;
  for (const ErrorCode code : {ErrorCode::busy, ErrorCode::out_of_memory}) {
    request("poet", "1");
    EXPECT_EQ(engine.begun, ++begun);
    engine.answer(Error(code, "not now"));
    EXPECT_EQ(answers.back(), "1: not now");
  }
  request("poet", "2");
  EXPECT_EQ(engine.begun, begun + 1);
}

TEST_F(SharedLoadsTest, RequestsWaitForAnExplicitLoad) {
  loads.load_explicitly(spec("poet", "elsewhere"), false, note("route"));
  request("poet", "1");
  request("poet", "2");
  EXPECT_EQ(engine.begun, 1);
  EXPECT_THAT(answers, IsEmpty());
  engine.answer({});
  EXPECT_THAT(answers, testing::UnorderedElementsAre("route", "1", "2"));
  EXPECT_THAT(loaded, ElementsAre("poet"));
  EXPECT_EQ(engine.begun, 1);
}

// The files that failed need not be those that requests find.
TEST_F(SharedLoadsTest, RequestsReadTheirOwnFilesIfAnExplicitLoadFails) {
  loads.load_explicitly(spec("poet", "elsewhere"), false, note("route"));
  request("poet", "1");
  engine.answer(Error(ErrorCode::bad_file, "half a file"));
  EXPECT_THAT(answers, ElementsAre("route: half a file"));
  ASSERT_EQ(engine.under_way.size(), 1U);
  EXPECT_EQ(engine.under_way.front().spec.path, "dir");
  EXPECT_FALSE(engine.under_way.front().replace);
  request("poet", "2");
  engine.answer({});
  EXPECT_THAT(answers, ElementsAre("route: half a file", "1", "2"));
  EXPECT_EQ(engine.begun, 2);
}

TEST_F(SharedLoadsTest, AnExplicitLoadIsRefusedAsTheEngineDoesAndDisturbsNoRequest) {
  request("poet", "1");
  loads.load_explicitly(spec("poet"), false, note("route"));
  EXPECT_THAT(answers, ElementsAre("route: it is being loaded"));
  request("poet", "2");
  EXPECT_EQ(engine.begun, 1);
  engine.answer({});
  EXPECT_THAT(answers, ElementsAre("route: it is being loaded", "1", "2"));
  loads.load_explicitly(spec("poet"), true, note("replaced"));
  ASSERT_EQ(engine.begun, 2);
  EXPECT_TRUE(engine.under_way.front().replace);
  engine.answer({});
  EXPECT_EQ(answers.back(), "replaced");
  EXPECT_THAT(loaded, ElementsAre("poet", "poet"));
}

TEST_F(SharedLoadsTest, AShutDownOfTheEngineAnswersAllThatWait) {
  request("poet", "1");
  request("poet", "2");
  loads.load_explicitly(spec("cynic"), false, note("route"));
  request("cynic", "3");
  engine.shutdown(engine::Engine::Drain::cancel);
  request("late", "4");
  EXPECT_THAT(answers,
              testing::UnorderedElementsAre("1: it is shutting down", "2: it is shutting down",
                                            "route: it is shutting down", "3: it is shutting down",
                                            "4: it is shutting down"));
}

// The same of a real engine, whose store ends no job.
TEST(SharedLoadsOfAnEngine, AreAllAnsweredWhenItShutsDown) {
  engine::test::WorldOptions options;
  test::ScriptedClock clock;
  engine::test::FakeExecutor executor(options.limits);
  engine::test::FakeSamplers samplers;
  engine::test::FakeStore store(options.adapter_pages);
  store.automatic = false;
  const auto engine = engine::Engine::create(
      {.executor = &executor, .samplers = &samplers, .adapters = &store, .clock = &clock}, {});
  SharedLoads loads(*engine, {}, &clock);
  std::vector<ErrorCode> answers;  // on the engine's thread, which has ended when they are read
  const auto note = [&](const Result<void>& result) {
    answers.push_back(result.ok() ? ErrorCode::internal : result.error().code());
  };
  loads.load_explicitly({.name = "cynic", .path = "cynic"}, false, note);
  for (const char* const name : {"poet", "poet", "cynic"})
    loads.load({.name = name, .path = name}, note);
  engine->shutdown(engine::Engine::Drain::cancel);
  EXPECT_EQ(answers, std::vector<ErrorCode>(4, ErrorCode::unavailable));
}

}  // namespace
}  // namespace motley::server
