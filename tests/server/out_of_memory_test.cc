// The nth allocation fails, for every n, on the threads that work for a request: the client gets
// its answer, an error, or the end of the connection, and the next request is served.

#include "base/system/out_of_memory.h"

#include <atomic>
#include <future>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/log.h"
#include "base/system/watchdog.h"
#include "server/test_server.h"
#include "support/allocations.h"

namespace motley::server {
namespace {

using motley::test::fail_allocations;
using motley::test::Spared;
using motley::test::stop_failing;
using motley::test::take_part;

// Takes part while it hears news.
class PartakingSink final : public engine::EventSink {
 public:
  explicit PartakingSink(std::shared_ptr<engine::EventSink> sink) : sink_(std::move(sink)) {}

  void take(engine::Event event) override {
    take_part(true);
    sink_->take(std::move(event));
    take_part(false);
  }

 private:
  std::shared_ptr<engine::EventSink> sink_;
};

// The fake engine, whose own allocations don't fail.
class PartakingEngine final : public engine::Engine {
 public:
  explicit PartakingEngine(FakeEngine& engine) : engine_(engine) {
    std::promise<void> done;
    engine.load_adapter({.name = "a", .path = "a"}, false, [&](const Result<void>&) {
      take_part(false);  // on the engine's thread, for ever
      done.set_value();
    });
    done.get_future().get();
  }

  Result<engine::RequestId> submit(engine::Request request,
                                   std::shared_ptr<engine::EventSink> sink) override {
    auto partaking = std::make_shared<PartakingSink>(std::move(sink));
    const Spared spared;
    return engine_.submit(std::move(request), std::move(partaking));
  }
  void cancel(engine::RequestId request) override {
    const Spared spared;
    engine_.cancel(request);
  }
  void cancel(engine::RequestId request, int choice, std::optional<std::int64_t> kept) override {
    const Spared spared;
    engine_.cancel(request, choice, kept);
  }
  void abort(engine::RequestId request) override {
    const Spared spared;
    engine_.abort(request);
  }
  void pause(engine::Pause pause, Done done) override {
    const Spared spared;
    engine_.pause(std::move(pause), std::move(done));
  }
  void resume(std::string adapter, Done done) override {
    const Spared spared;
    engine_.resume(std::move(adapter), std::move(done));
  }
  engine::Pauses paused() const override {
    const Spared spared;
    return engine_.paused();
  }
  void reset_prefix_cache(bool preempts, Done done) override {
    const Spared spared;
    engine_.reset_prefix_cache(preempts, std::move(done));
  }
  void load_adapter(engine::AdapterSpec spec, bool replace, Done done) override {
    const Spared spared;
    engine_.load_adapter(std::move(spec), replace, std::move(done));
  }
  void unload_adapter(std::string name, Done done) override {
    const Spared spared;
    engine_.unload_adapter(std::move(name), std::move(done));
  }
  std::vector<engine::AdapterInfo> adapters() const override {
    const Spared spared;
    return engine_.adapters();
  }
  engine::Stats stats() const override {
    const Spared spared;
    return engine_.stats();
  }
  std::int64_t max_sequence_tokens() const override { return engine_.max_sequence_tokens(); }
  void shutdown(Drain drain) override { engine_.shutdown(drain); }
  Result<void> health() const override { return engine_.health(); }

 private:
  FakeEngine& engine_;
};

// The watchdog reads it at the beginning of a worker's work, on the worker.
class PartakingClock final : public Clock {
 public:
  TimePoint now() const override {
    if (workers_take_part) take_part(true);
    return {};
  }
  std::atomic<bool> workers_take_part = false;
};

class ServerOutOfMemory : public testing::Test {
 protected:
  ServerOutOfMemory() {
    log::configure({.level = log::Level::off});
    engine_.say("one two three four");
    service_ = std::make_unique<Service>(
        text_, partaking_,
        Service::Options{
            .planner = {.base = "base",
                        .vocabulary = text_.tokenizer().size(),
                        .prompts = {.max_sequence_tokens = engine_.max_sequence_tokens()}},
            .watchdog = &watchdog_});
    http_ =
        HttpServer::listen(
            {}, {.handler = [this](Exchange& exchange) { return service_->answer(exchange); },
                 .admit = [this](const HttpHead& head) { return service_->admit(head); },
                 .refuse = [this](const Error& error,
                                  const HttpHead& head) { return service_->refuse(error, head); }})
            .value();
    http_->start();
  }
  ~ServerOutOfMemory() override {
    http_->stop();
    log::configure({});
  }

  // How many allocations failed. An answer that was finished is the one without failures.
  std::int64_t ask_with_failure(std::int64_t nth, std::int64_t count, const std::string& request,
                                const std::string& well) {
    fail_allocations(nth, count);
    const Received received = ask(http_->port(), request);
    const std::int64_t failed = stop_failing();
    // Either the whole answer, or the error: instead of it, or as the last event of a stream.
    const bool cut = received.body.find("\"error\"") != std::string::npos;
    if (received.status == 200 && !cut) {
      EXPECT_EQ(received.body.size(), well.size()) << received.body;
    } else {
      EXPECT_GT(failed, 0) << received.body;
      EXPECT_THAT(received.body, testing::HasSubstr("out_of_memory"));
      const bool stream = request.find("\"stream\": true") != std::string::npos;
      EXPECT_TRUE(received.status == 503 || (stream && received.status == 200))
          << received.status << received.body;
    }
    return failed;
  }

  void sweep(const std::string& request, std::int64_t count) {
    const Received well = ask(http_->port(), request);
    ASSERT_EQ(well.status, 200);
    std::int64_t nth = 1;
    for (; !HasFailure(); ++nth) {
      SCOPED_TRACE(nth);
      if (ask_with_failure(nth, count, request, well.body) == 0) break;
      // Requests beside it and later ones.
      if (nth % 16 == 0) {
        EXPECT_EQ(ask(http_->port(), request).status, 200);
      }
    }
    EXPECT_GT(nth, 3);
    EXPECT_EQ(ask(http_->port(), request).body.size(), well.body.size());
  }

  TemporaryFolder folder_;
  text::ModelText text_ = make_model_text(folder_.path(), qwen_tokenizer());
  std::unique_ptr<HttpServer> http_;
  FakeEngine engine_{text_.tokenizer()};
  PartakingEngine partaking_{engine_};
  PartakingClock clock_;
  Watchdog watchdog_{std::chrono::hours(1), &clock_};
  std::unique_ptr<Service> service_;
};

const std::string whole =
    post("/v1/completions", R"({"prompt": "hello", "max_tokens": 4, "logprobs": 2})");
const std::string stream =
    post("/v1/completions", R"({"prompt": "hello", "max_tokens": 4, "stream": true})");

TEST_F(ServerOutOfMemory, NewsThatFindsNoMemoryIsAnErrorAndNeverSilence) {
  for (const std::int64_t count : {1, 3}) {
    sweep(whole, count);
    sweep(stream, count);
  }
}

// Event-loop threads are left out: Asio's strands don't survive each of their own allocations.
TEST_F(ServerOutOfMemory, ARequestWhoseParsingFindsNoMemoryIsAnError) {
  clock_.workers_take_part = true;
  sweep(whole, 1);
  sweep(whole, 20);
  EXPECT_GT(out_of_memory_count(), 20);
}

}  // namespace
}  // namespace motley::server
