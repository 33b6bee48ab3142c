// Two engines behind one front, over sockets: one of them fails, and the other goes on.

#include <atomic>
#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/replicas/replicated_engine.h"
#include "engine/test_world.h"
#include "server/test_server.h"

namespace motley::server {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr engine::Executor::Limits limits = {.rows = 64,
                                             .sequences = 8,
                                             .sequence_tokens = 1000,
                                             .pages = 512,
                                             .page_tokens = 4,
                                             .vocabulary = 1507};  // of the tokenizer

// Fails from when a test says so, at the next step.
class FaultyExecutor final : public engine::test::FakeExecutor {
 public:
  using FakeExecutor::FakeExecutor;

  Result<void> step(std::span<const runner::Chunk> chunks, std::span<engine::ChunkOutput> outputs,
                    FunctionRef<void()> meanwhile) override {
    if (!fails) return FakeExecutor::step(chunks, outputs, meanwhile);
    return Error(ErrorCode::io, "the device is gone");
  }
  std::atomic<bool> fails = false;
};

struct FakeReplica {
  FakeReplica()
      : engine(engine::Replica::create(
            {.executor = &executor, .samplers = &samplers, .adapters = &store, .clock = &clock},
            {.max_queue = 8, .validate = true})) {}

  SteadyClock clock;
  FaultyExecutor executor{limits};
  engine::test::FakeSamplers samplers;
  engine::test::FakeStore store{8};
  std::unique_ptr<engine::Replica> engine;
};

class Replicas : public testing::Test {
 protected:
  static std::string completion(std::string_view model = "base") {
    return post("/v1/completions",
                cat(R"({"model": ")", model,
                    R"(", "prompt": [1, 2, 3], "max_tokens": 4, "ignore_eos": true})"));
  }
  std::string page(std::string_view path) const { return server_.ask(get(path)).body; }

  FakeReplica replicas_[2];
  engine::ReplicatedEngine engine_{{replicas_[0].engine.get(), replicas_[1].engine.get()}};
  TestServer server_{{.adapter_loading = true, .engine = &engine_}};
};

TEST_F(Replicas, PauseAndResumeTogether) {
  const auto begin = [this](std::vector<std::unique_ptr<Client>>& clients) {
    clients.push_back(std::make_unique<Client>(server_.port()));
    clients.back()->send(completion());
  };
  ASSERT_EQ(server_.ask(post("/pause?mode=keep", "")).status, 200);
  std::vector<std::unique_ptr<Client>> queued;
  const auto waiting = [this](int replica) {
    return replicas_[replica].engine->status({}).sequences;
  };
  // One after the other, so that each finds the others counted.
  for (int i = 1; i <= 6; ++i) {
    begin(queued);
    EXPECT_TRUE(eventually([&] { return waiting(0) + waiting(1) == i; }));
  }
  EXPECT_EQ(waiting(0), 3);
  EXPECT_EQ(waiting(1), 3);
  EXPECT_EQ(replicas_[0].executor.steps + replicas_[1].executor.steps, 0);
  // In the other modes what queued ends, one way or the other.
  ASSERT_EQ(server_.ask(post("/pause?mode=abort", "")).status, 200);
  for (const auto& each : queued)
    EXPECT_THAT(each->receive().body, HasSubstr(R"("finish_reason":"abort")"));
  EXPECT_EQ(server_.ask(completion()).status, 503);
  ASSERT_EQ(server_.ask(post("/resume", "")).status, 200);
  EXPECT_EQ(server_.ask(completion()).status, 200);
}

TEST_F(Replicas, ResetThePrefixCachesOfAll) {
  const auto cached = [this](int replica) {
    return replicas_[replica].engine->stats().kv_pages_cached;
  };
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(
        server_
            .ask(post("/v1/completions",
                      cat(R"({"prompt": [)", i, R"(, 2, 3, 4, 5, 6, 7, 8, 9], "max_tokens": 1})")))
            .status,
        200);
  EXPECT_TRUE(eventually([&] { return cached(0) > 0 && cached(1) > 0; }));
  EXPECT_EQ(server_.ask(post("/reset_prefix_cache", R"({"reset_running_requests": true})")).body,
            R"({"success":true})");
  EXPECT_EQ(cached(0) + cached(1), 0);
}

TEST_F(Replicas, ServeOnWithoutTheOneWhoseDeviceFails) {
  for (int i = 0; i < 6; ++i) EXPECT_EQ(server_.ask(completion()).status, 200);
  EXPECT_EQ(page("/health"), R"({"status":"ready"})");
  EXPECT_THAT(page("/metrics"), HasSubstr("motley_requests_total{replica=\"1\"} 3\n"));

  replicas_[1].executor.fails = true;
  int failed = 0;
  for (int i = 0; i < 6; ++i) {
    const Received answer = server_.ask(completion());
    if (answer.status == 200) continue;
    ++failed;
    EXPECT_EQ(answer.status, 500);
    EXPECT_THAT(answer.error("message"), HasSubstr("the device is gone"));
  }
  EXPECT_EQ(failed, 1);
  const Received health = server_.ask(get("/health"));
  EXPECT_EQ(health.status, 200);
  EXPECT_EQ(health.body,
            R"({"status":"ready","lost_replicas":[{"replica":1,"error":"the device is gone"}]})");
  EXPECT_THAT(page("/metrics"), HasSubstr("motley_replica_up{replica=\"0\"} 1\n"));
  EXPECT_THAT(page("/metrics"), HasSubstr("motley_replica_up{replica=\"1\"} 0\n"));

  // With the last one nothing is ready.
  replicas_[0].executor.fails = true;
  EXPECT_EQ(server_.ask(completion()).status, 500);
  EXPECT_EQ(server_.ask(get("/health")).status, 503);
}

TEST_F(Replicas, TakeAnAdapterAllOrNone) {
  TemporaryFolder folder;
  const std::string path = folder.path().string();
  const std::string load =
      post("/v1/load_lora_adapter", cat(R"({"lora_name": "law", "lora_path": ")", path, "\"}"));
  replicas_[0].store.put(path, 1, 1);
  const Received refused = server_.ask(load);
  EXPECT_EQ(refused.status, 404);
  EXPECT_THAT(refused.error("message"), HasSubstr("no such folder"));
  EXPECT_EQ(server_.ask(completion("law")).status, 404);
  EXPECT_THAT(page("/v1/models"), Not(HasSubstr("law")));

  replicas_[1].store.put(path, 1, 1);
  EXPECT_EQ(server_.ask(load).status, 200);
  EXPECT_THAT(page("/v1/models"), HasSubstr("law"));
  EXPECT_EQ(server_.ask(completion("law")).status, 200);
  const std::string unload = post("/v1/unload_lora_adapter", R"({"lora_name": "law"})");
  EXPECT_EQ(server_.ask(unload).status, 200);
  EXPECT_EQ(server_.ask(unload).status, 404);
  EXPECT_EQ(server_.ask(completion("law")).status, 404);
}

}  // namespace
}  // namespace motley::server
