#include "engine/adapter_check.h"

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/log.h"
#include "base/test_waits.h"
#include "engine/test_world.h"

namespace motley::engine::test {
namespace {

using testing::HasSubstr;
using testing::Not;

// Each step waits until the test lets them go on.
class HeldExecutor final : public FakeExecutor {
 public:
  using FakeExecutor::FakeExecutor;

  Result<void> step(std::span<const runner::Chunk> chunks, std::span<ChunkOutput> outputs,
                    FunctionRef<void()> meanwhile) override {
    begun.set();
    may_end.wait("the test lets steps go on");
    return FakeExecutor::step(chunks, outputs, meanwhile);
  }

  motley::test::Event begun;
  motley::test::Event may_end;
};

class CountingSamplers final : public FakeSamplers {
 public:
  Abandon prepare(const Request& request, Prepared done) override {
    Abandon abandon = FakeSamplers::prepare(request, std::move(done));
    prepared_.change([this] { ++requests_; });
    return abandon;
  }
  void wait_for(int requests) const {
    prepared_.wait("the requests are accepted", [&] { return requests_ >= requests; });
  }

 private:
  motley::test::Monitor prepared_;
  int requests_ = 0;
};

// An engine with the adapters a and b; what is logged meanwhile.
class AdapterCheckerTest : public testing::Test {
 protected:
  AdapterCheckerTest() {
    log::configure({.level = log::Level::debug, .sink = [this](std::string_view line) {
                      const std::lock_guard held(lock_);
                      lines_ += line;
                    }});
    engine_ = Engine::create(
        {.executor = &executor_, .samplers = &samplers_, .adapters = &store_, .clock = &clock_},
        {.validate = true});
    for (const char* const name : {"a", "b"}) {
      store_.put(name, 1, 1);
      std::promise<Result<void>> loaded;
      engine_->load_adapter({.name = name, .path = name}, false,
                            [&](Result<void> result) { loaded.set_value(std::move(result)); });
      motley::test::get(loaded, "the load is answered").value();
    }
  }
  ~AdapterCheckerTest() override {
    executor_.may_end.set();
    engine_.reset();
    log::configure({});
  }

  std::string lines() const {
    const std::lock_guard held(lock_);
    return lines_;
  }

  WorldOptions options_;
  ScriptedClock clock_;
  HeldExecutor executor_{options_.limits};
  CountingSamplers samplers_;
  FakeStore store_{options_.adapter_pages};
  std::unique_ptr<Engine> engine_;

 private:
  mutable std::mutex lock_;
  std::string lines_;
};

TEST_F(AdapterCheckerTest, WarnsOfNoneThatChangesLogProbabilities) {
  executor_.may_end.set();
  AdapterChecker checker(*engine_, prompt(5));
  checker.add("a");
  checker.add("b");
  motley::test::call_within_bound("both are checked", [&] { checker.wait(); });
  EXPECT_THAT(lines(), HasSubstr("adapter.checked adapter=a"));
  EXPECT_THAT(lines(), HasSubstr("adapter.checked adapter=b"));
  EXPECT_THAT(lines(), Not(HasSubstr("adapter.changes_nothing")));
}

// A cancelled request has no log-probabilities, which must not pass for equal ones.
TEST_F(AdapterCheckerTest, EndsWithoutAWarningWhenTheEngineIsShutDownDuringAndBeforeChecks) {
  // The checks wait for the end of this one's step.
  ASSERT_TRUE(engine_->submit({.tokens = prompt(2)}, std::make_shared<MemorySink>()).ok());
  executor_.begun.wait("a step begins");
  std::optional<AdapterChecker> checker(std::in_place, *engine_, prompt(5));
  checker->add("a");
  samplers_.wait_for(3);
  checker->add("b");
  std::thread shutdown([this] { engine_->shutdown(Engine::Drain::cancel); });
  motley::test::wait_for("the engine takes no more requests", [&] {
    const auto late = engine_->submit({.tokens = prompt(2)}, std::make_shared<MemorySink>());
    return !late.ok() && late.error().code() == ErrorCode::unavailable;
  });
  executor_.may_end.set();
  motley::test::call_within_bound("the checker ends", [&] {
    shutdown.join();
    checker.reset();
  });
  EXPECT_THAT(lines(), HasSubstr("adapter.not_checked adapter=a"));
  EXPECT_THAT(lines(), Not(HasSubstr("adapter.checked")));
  EXPECT_THAT(lines(), Not(HasSubstr("warning")));
}

}  // namespace
}  // namespace motley::engine::test
