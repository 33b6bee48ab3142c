// Routes for trainers, as their clients call them: TRL 1.16.0, axolotl 0.21.0, prime-rl (its
// repository, August 2026), SkyRL 0.4.0, SGLang 0.5.23 and aiperf 0.13.0.

#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "server/json_paths.h"
#include "server/test_server.h"

namespace motley::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string load_of(std::string_view name, std::string_view path = "/tmp",
                    std::string_view more = "") {
  return cat(R"({"lora_name": ")", name, R"(", "lora_path": ")", path, "\"", more, "}");
}
std::string generation_of(std::string_view model = "base", std::string_view more = "") {
  return cat(R"({"prompt": "x", "max_tokens": 20, "model": ")", model, "\"", more, "}");
}
std::string request_id_header(std::string_view id) { return cat("X-Request-Id: ", id, "\r\n"); }

class TrainersAsk : public testing::Test {
 protected:
  // A generation that the engine has.
  std::unique_ptr<Client> begin_one(const std::string& body, std::string_view headers = {}) {
    auto client = std::make_unique<Client>(server_.port());
    client->send(post("/v1/completions", body, headers));
    server_.engine().wait_for_submitted(++begun_);
    return client;
  }
  int status(std::string_view path, std::string_view body = {}) {
    return server_.ask(post(path, body)).status;
  }
  bool is_paused(std::string_view query = {}) {
    const Received reply = server_.ask(get(cat("/is_paused", query)));
    EXPECT_EQ(reply.status, 200);
    return text_at(reply.json(), "is_paused") == "true";
  }
  static std::string end_of(const Received& reply) {
    return text_at(reply.json(), "choices.0.finish_reason");
  }

  TestServer server_{{.adapter_loading = true}};
  std::size_t begun_ = 0;
};

TEST_F(TrainersAsk, RootAndSkyRlLoadsReplaceInPlaceAndAnswerJson) {
  for (const char* const path : {"/load_lora_adapter", "/skyrl/v1/load_lora_adapter"}) {
    for (int i = 0; i < 2; ++i) {
      const Received reply = server_.ask(post(path, load_of("skyrl-lora", "/tmp")));
      ASSERT_EQ(reply.status, 200) << reply.body;
      EXPECT_EQ(text_at(reply.json(), "status"), "ok");
      EXPECT_EQ(text_at(reply.json(), "success"), "true");
      EXPECT_EQ(text_at(reply.json(), "error_message"), "");
      EXPECT_EQ(text_at(reply.json(), "loaded_adapters.skyrl-lora"), "tmp");
    }
  }
  // SGLang's field.
  EXPECT_EQ(status("/load_lora_adapter", load_of("b", "/tmp", R"(, "pinned": true)")), 200);
  const Received gone = server_.ask(post("/unload_lora_adapter", R"({"lora_name": "b"})"));
  EXPECT_EQ(gone.status, 200);
  EXPECT_EQ(text_at(gone.json(), "success"), "true");
  EXPECT_EQ(server_.ask(post("/skyrl/v1/unload_lora_adapter", R"({"lora_name": "b"})")).status,
            404);
  // SkyRL and prime-rl unload with /v1, vLLM's clients with a null.
  EXPECT_EQ(
      status("/v1/unload_lora_adapter", R"({"lora_name": "skyrl-lora", "lora_int_id": null})"),
      200);
}

// prime-rl tries 404 again, and gives up at 400.
TEST_F(TrainersAsk, WhatIsNotThereYetIsNotFoundAndWhatIsBrokenIsRefused) {
  const TemporaryFolder folder;
  const auto load = [&](std::string_view path) {
    return server_.ask(post("/load_lora_adapter", load_of("policy", path)));
  };
  EXPECT_EQ(load("/nowhere/step_3").status, 404);
  server_.engine().refuse_adapters({ErrorCode::bad_file, "no adapter_config.json"});
  const Received empty = load(folder.path().string());
  EXPECT_EQ(empty.status, 404);
  EXPECT_THAT(empty.error("message"), HasSubstr("no adapter_config.json in"));
  EXPECT_EQ(text_at(empty.json(), "success"), "false");
  EXPECT_EQ(text_at(empty.json(), "error_message"), empty.error("message"));
  folder.file("adapter_config.json", "{}");
  EXPECT_THAT(load(folder.path().string()).error("message"),
              HasSubstr("no adapter_model.safetensors in"));
  folder.file("adapter_model.safetensors", "half");
  server_.engine().refuse_adapters({ErrorCode::bad_file, "the file is cut short"});
  const Received broken = load(folder.path().string());
  EXPECT_EQ(broken.status, 400);
  EXPECT_THAT(broken.error("message"), HasSubstr("the file is cut short"));
}

// As vLLM 0.33's: production-stack and AIBrix read the words, TRL and axolotl the status.
TEST_F(TrainersAsk, TheV1LoadKeepsVllmsStatusesAndWords) {
  const std::string path = "/v1/load_lora_adapter";
  const std::string body = load_of("trl-policy-v1", "/tmp", R"(, "is_3d_lora_weight": false)");
  const Received first = server_.ask(post(path, body));
  EXPECT_EQ(first.status, 200);
  EXPECT_EQ(first.body, "Success: LoRA adapter 'trl-policy-v1' added successfully.");
  const Received again = server_.ask(post(path, body));
  EXPECT_EQ(again.status, 400);
  constexpr std::string_view words =
      "has already been loaded. If you want to load the adapter in place, set 'load_inplace' to "
      "True";
  EXPECT_THAT(again.error("message"), HasSubstr(words));
  EXPECT_THAT(text_at(again.json(), "message"), HasSubstr(words));
  EXPECT_EQ(text_at(again.json(), "type"), "InvalidUserInput");
  EXPECT_EQ(status(path, load_of("trl-policy-v1", "/tmp", R"(, "load_inplace": true)")), 200);
  const Received missing = server_.ask(post(path, load_of("trl-policy-v2", "/nowhere/v2")));
  EXPECT_EQ(missing.status, 404);
  EXPECT_EQ(text_at(missing.json(), "type"), "NotFoundError");
  EXPECT_THAT(missing.error("message"), HasSubstr("no such folder"));
  EXPECT_EQ(server_.ask(post("/v1/unload_lora_adapter", R"({"lora_name": "trl-policy-v1"})")).body,
            "Success: LoRA adapter 'trl-policy-v1' removed successfully.");
}

// TRL's AsyncGRPO: pause?mode=keep, load, resume, completions of the new name.
TEST_F(TrainersAsk, TrlKeepsRequestsWhileItLoads) {
  server_.engine().say("one two three");
  server_.engine().hold_after(1);
  const auto running = begin_one(generation_of());
  const Received paused = server_.ask(post("/pause?mode=keep", ""));
  EXPECT_EQ(paused.status, 200);
  EXPECT_EQ(paused.body, R"({"status":"paused"})");
  EXPECT_TRUE(is_paused());
  server_.engine().release();
  const auto queued = begin_one(generation_of());
  EXPECT_EQ(status("/v1/load_lora_adapter", load_of("trl-policy-v1")), 200);
  for (const char* const path : {"/health", "/metrics", "/v1/models"})
    EXPECT_EQ(server_.ask(get(path)).status, 200);
  EXPECT_EQ(server_.ask(post("/resume", "")).body, R"({"status":"resumed"})");
  EXPECT_FALSE(is_paused());
  EXPECT_EQ(status("/resume"), 200);
  for (const auto* each : {&running, &queued}) {
    const Received reply = (*each)->receive();
    EXPECT_EQ(reply.status, 200) << reply.body;
    EXPECT_EQ(text_at(reply.json(), "choices.0.text"), "one two three");
  }
  EXPECT_EQ(status("/v1/completions", generation_of("trl-policy-v1")), 200);
}

// axolotl: pause?mode=wait, load, resume.
TEST_F(TrainersAsk, AxolotlWaitsForTheEndOfWhatRuns) {
  server_.engine().say("one two three");
  server_.engine().hold_after(1);
  const auto running = begin_one(generation_of());
  Client pause(server_.port());
  pause.send(post("/pause?mode=wait", ""));
  EXPECT_TRUE(eventually([&] { return server_.engine().last_pause().has_value(); }));
  const Received refused = server_.ask(post("/v1/completions", generation_of()));
  EXPECT_EQ(refused.status, 503);
  EXPECT_TRUE(refused.headers.contains("retry-after"));
  EXPECT_THAT(refused.error("message"), HasSubstr("paused"));
  server_.engine().release();
  EXPECT_EQ(pause.receive().status, 200);
  EXPECT_EQ(end_of(running->receive()), "length");
  EXPECT_TRUE(server_.engine().last_pause()->clears_cache);
  EXPECT_EQ(status("/v1/load_lora_adapter", load_of("base-v3")), 200);
  EXPECT_EQ(status("/resume"), 200);
  EXPECT_EQ(status("/v1/completions", generation_of("base-v3")), 200);
}

TEST_F(TrainersAsk, AbortIsTheDefaultAndGivesWhatThereIs) {
  server_.engine().say("one two three");
  server_.engine().hold_after(1);
  const auto whole = begin_one(generation_of());
  const auto stream = begin_one(generation_of("base", R"(, "stream": true)"));
  server_.engine().wait_for_talking(2);
  EXPECT_EQ(server_.ask(post("/pause", "")).status, 200);
  const Received reply = whole->receive();
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(end_of(reply), "abort");
  EXPECT_EQ(text_at(reply.json(), "choices.0.text"), "one");
  const Received events = stream->receive();
  EXPECT_TRUE(events.done());
  EXPECT_THAT(events.body, HasSubstr(R"("finish_reason":"abort")"));
  EXPECT_EQ(status("/pause"), 200);
  EXPECT_EQ(status("/v1/completions", generation_of()), 503);
  EXPECT_EQ(status("/resume"), 200);
}

TEST_F(TrainersAsk, OtherProtocolsHaveTheirWordsForAnAbort) {
  server_.engine().say("one two three");
  server_.engine().hold_after(1);
  const std::string messages =
      R"({"model": "base", "max_tokens": 20, "messages": [{"role": "user", "content": "x"}]})";
  std::vector<std::unique_ptr<Client>> clients;
  for (const auto& [path, body] : std::initializer_list<std::pair<std::string, std::string>>{
           {"/v1/chat/completions", messages},
           {"/v1/messages", messages},
           {"/v1/responses", R"({"model": "base", "input": "x"})"}}) {
    clients.push_back(std::make_unique<Client>(server_.port()));
    clients.back()->send(post(path, body));
    server_.engine().wait_for_submitted(clients.size());
  }
  EXPECT_EQ(status("/pause", R"({"mode": "abort", "clear_cache": false})"), 200);
  EXPECT_FALSE(server_.engine().last_pause()->clears_cache);
  EXPECT_EQ(end_of(clients[0]->receive()), "abort");
  EXPECT_EQ(text_at(clients[1]->receive().json(), "stop_reason"), "max_tokens");
  EXPECT_EQ(text_at(clients[2]->receive().json(), "status"), "incomplete");
}

TEST_F(TrainersAsk, OneAdapterPauses) {
  server_.engine().say("one two three");
  ASSERT_EQ(status("/load_lora_adapter", load_of("mine")), 200);
  ASSERT_EQ(status("/load_lora_adapter", load_of("theirs")), 200);
  EXPECT_EQ(status("/pause", R"({"mode": "wait", "lora_name": "mine"})"), 200);
  EXPECT_FALSE(is_paused());
  EXPECT_TRUE(is_paused("?lora_name=mine"));
  EXPECT_FALSE(is_paused("?lora_name=theirs"));
  EXPECT_EQ(status("/v1/completions", generation_of("mine")), 503);
  EXPECT_EQ(status("/v1/completions", generation_of("theirs")), 200);
  EXPECT_EQ(status("/v1/completions", generation_of()), 200);
  EXPECT_EQ(status("/resume"), 200);
  EXPECT_EQ(status("/v1/completions", generation_of("mine")), 503);
  EXPECT_EQ(status("/resume?lora_name=mine"), 200);
  EXPECT_EQ(status("/v1/completions", generation_of("mine")), 200);
}

TEST_F(TrainersAsk, WrongPausesAreRefusedByTheirField) {
  const Received mode = server_.ask(post("/pause?mode=stop", ""));
  EXPECT_EQ(mode.status, 400);
  EXPECT_EQ(mode.error("param"), "mode");
  const Received clear = server_.ask(post("/pause", R"({"clear_cache": 7})"));
  EXPECT_EQ(clear.status, 400);
  EXPECT_EQ(clear.error("param"), "clear_cache");
  EXPECT_EQ(status("/pause", "[]"), 400);
  EXPECT_EQ(status("/pause?mode=keep&mode=abort"), 400);
  EXPECT_FALSE(is_paused());
}

// Else a trainer that unloads before it resumes would wait for itself.
TEST_F(TrainersAsk, AnUnloadDoesNotWaitForWhatStandsStill) {
  server_.engine().say("one two three");
  const std::string unloads[] = {post("/v1/unload_lora_adapter", R"({"lora_name": "a"})"),
                                 "DELETE /v1/adapters/a HTTP/1.1\r\nHost: test\r\n\r\n"};
  for (const std::string& unload : unloads) {
    ASSERT_EQ(status("/load_lora_adapter", load_of("a")), 200);
    ASSERT_EQ(status("/pause?mode=keep"), 200);
    const auto kept = begin_one(generation_of("a"));
    EXPECT_EQ(server_.ask(unload).status, 200);
    EXPECT_EQ(server_.ask(unload).status, 404);
    EXPECT_EQ(status("/resume"), 200);
    EXPECT_EQ(kept->receive().status, 200);
  }
}

TEST_F(TrainersAsk, AbortsRequestsByTheIdsOfTheirClients) {
  server_.engine().say("one two three");
  server_.engine().hold_after(1);
  const auto by_header = begin_one(generation_of(), request_id_header("rollout-1"));
  const auto by_body = begin_one(generation_of("base", R"(, "request_id": "rollout-2")"));
  const auto by_answer = begin_one(generation_of("base", R"(, "request_id": "rollout-3")"));
  const auto other = begin_one(generation_of(), request_id_header("rollout-4"));
  const Received some = server_.ask(
      post("/abort_requests",
           R"({"request_ids": ["rollout-1", "rollout-2", "cmpl-rollout-3", "nothing"]})"));
  EXPECT_EQ(some.status, 200);
  EXPECT_EQ(some.body, R"({"status":"aborted","aborted":3})");
  for (const auto* each : {&by_header, &by_body, &by_answer})
    EXPECT_EQ(end_of((*each)->receive()), "abort");
  const Received all = server_.ask(post("/inference/v1/abort_requests", ""));
  EXPECT_EQ(all.body, R"({"status":"aborted","aborted":1})");
  EXPECT_EQ(end_of(other->receive()), "abort");
  EXPECT_EQ(server_.ask(post("/abort_requests", R"({"request_ids": []})")).body,
            R"({"status":"aborted","aborted":0})");
  EXPECT_EQ(server_.ask(post("/abort_requests", R"({"request_ids": "x"})")).error("param"),
            "request_ids");
}

// A client that may not change the server ends only its requests.
TEST(TrainerRights, AClientAbortsOnlyItsRequests) {
  TestServer server(
      {.holders = R"([{"key": "one", "name": "ann"}, {"key": "two", "name": "ben"}])"});
  server.engine().say("one two three");
  server.engine().hold_after(1);
  const std::string ann = "Authorization: Bearer one\r\n";
  const std::string ben = "Authorization: Bearer two\r\n";
  Client first(server.port());
  first.send(post("/v1/completions", generation_of(), cat(ann, request_id_header("same"))));
  Client second(server.port());
  second.send(post("/v1/completions", generation_of(), cat(ben, request_id_header("same"))));
  server.engine().wait_for_submitted(2);
  for (const char* const body : {R"({"request_ids": ["same"]})", ""}) {
    const std::string aborted = server.ask(post("/abort_requests", body, ann)).body;
    EXPECT_EQ(aborted, cat(R"({"status":"aborted","aborted":)", *body == 0 ? 0 : 1, "}"));
  }
  EXPECT_EQ(text_at(first.receive().json(), "choices.0.finish_reason"), "abort");
  server.engine().release();
  EXPECT_EQ(text_at(second.receive().json(), "choices.0.finish_reason"), "length");
}

// TRL posts a query, SkyRL a JSON body, aiperf nothing.
TEST_F(TrainersAsk, ResetsThePrefixCache) {
  EXPECT_EQ(server_.ask(post("/reset_prefix_cache", "")).body, R"({"success":true})");
  EXPECT_EQ(status("/reset_prefix_cache", R"({"reset_running_requests": true})"), 200);
  EXPECT_EQ(status("/reset_prefix_cache?reset_running_requests=True&reset_external=false"), 200);
  EXPECT_THAT(server_.engine().resets(), ElementsAre(false, true, true));
  EXPECT_EQ(status("/reset_prefix_cache?reset_running_requests=perhaps"), 400);
  EXPECT_EQ(status("/reset_mm_cache"), 200);
  EXPECT_EQ(status("/reset_encoder_cache"), 200);
}

TEST_F(TrainersAsk, SaysWhatItIs) {
  const Received reply = server_.ask(get("/server_info?config_format=json"));
  EXPECT_EQ(reply.status, 200);
  const json::Value info = reply.json();
  EXPECT_EQ(text_at(info, "vllm_config.model_config.dtype"), "torch.bfloat16");
  EXPECT_EQ(text_at(info, "vllm_config.model_config.logprobs_mode"), "processed_logprobs");
  EXPECT_EQ(text_at(info, "vllm_config.lora_config.max_lora_rank"), "64");
  EXPECT_EQ(text_at(info, "vllm_config.lora_config.max_loras"), "10000");
  EXPECT_EQ(text_at(info, "vllm_config.parallel_config.tensor_parallel_size"), "2");
  EXPECT_EQ(text_at(info, "vllm_config.parallel_config.data_parallel_size"), "1");
  EXPECT_EQ(text_at(info, "vllm_config.weight_transfer_config"), "null");
  EXPECT_EQ(text_at(info, "motley.arithmetic.compute"), "bfloat16");
  EXPECT_EQ(text_at(info, "motley.digest").size(), 16);
  TestServer closed;
  EXPECT_EQ(text_at(closed.ask(get("/server_info")).json(), "vllm_config.lora_config"), "null");
}

// SkyRL 0.4 sends a GET with a body.
TEST_F(TrainersAsk, SaysHowManyRanksThereAre) {
  const std::string with_body =
      "GET /get_world_size HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n"
      "Content-Length: 2\r\n\r\n{}";
  EXPECT_EQ(server_.ask(with_body).body, R"({"world_size":6})");
  EXPECT_EQ(server_.ask(get("/get_world_size?include_dp=true")).body, R"({"world_size":6})");
  EXPECT_EQ(server_.ask(get("/get_world_size?include_dp=false")).body, R"({"world_size":2})");
}

// As ART calls them.
TEST_F(TrainersAsk, SleepsWithoutAnEffect) {
  server_.engine().say("x");
  EXPECT_EQ(status("/sleep?level=1&mode=wait"), 200);
  EXPECT_EQ(server_.ask(get("/is_sleeping")).body, R"({"is_sleeping":false})");
  EXPECT_EQ(status("/v1/completions", generation_of()), 200);
  EXPECT_EQ(status("/wake_up?tags=weights"), 200);
}

TEST_F(TrainersAsk, UpdatesOfTheBaseAreRefusedWithWhatToDo) {
  for (const char* const path :
       {"/update_weights", "/init_weight_transfer_engine", "/collective_rpc",
        "/update_weights_from_tensor", "/weight_checker"}) {
    const Received reply = server_.ask(post(path, "{}"));
    EXPECT_EQ(reply.status, 400);
    EXPECT_THAT(reply.error("message"), HasSubstr("push it"));
  }
}

constexpr std::string_view changing_routes[] = {"/load_lora_adapter",
                                                "/skyrl/v1/load_lora_adapter",
                                                "/v1/load_lora_adapter",
                                                "/pause",
                                                "/resume",
                                                "/unload_lora_adapter",
                                                "/reset_prefix_cache",
                                                "/reset_mm_cache",
                                                "/sleep",
                                                "/wake_up"};

TEST(TrainerRights, NothingIsChangedUnlessThatIsAllowed) {
  TestServer closed;
  for (const std::string_view path : changing_routes) {
    const Received reply = closed.ask(post(path, ""));
    EXPECT_EQ(reply.status, 403) << path;
    EXPECT_THAT(reply.error("message"), HasSubstr("--allow-adapter-loading or --admin-key-file"));
  }
  TestServer open({.adapter_loading = true});
  for (const std::string_view path : changing_routes)
    EXPECT_EQ(open.ask(post(path, "", "Origin: http://elsewhere\r\n")).status, 403) << path;
}

TEST(TrainerRights, WithAdminKeysOnlyTheseChangeTheServer) {
  const std::string admin = "Authorization: Bearer root\r\n";
  const std::string user = "X-Api-Key: user\r\n";
  for (const bool adapter_loading : {false, true}) {
    TestServer server(
        {.keys = {"user"}, .admin_keys = {"root"}, .adapter_loading = adapter_loading});
    server.engine().say("x");
    for (const std::string_view path : changing_routes) {
      EXPECT_EQ(server.ask(post(path, "", user)).status, 403) << path;
      EXPECT_EQ(server.ask(post(path, "")).status, 401) << path;
    }
    EXPECT_EQ(server.ask(post("/pause?mode=keep", "", admin)).status, 200);
    EXPECT_EQ(server.ask(post("/resume", "", admin)).status, 200);
    EXPECT_EQ(server.ask(post("/load_lora_adapter", load_of("a"), admin)).status, 200);
    // An admin may do what others may.
    EXPECT_EQ(server.ask(post("/v1/completions", generation_of("a"), admin)).status, 200);
    EXPECT_EQ(server.ask(post("/v1/completions", generation_of("a"), user)).status, 200);
    server.service().set_admin_keys(ApiKeys({"next"}));
    EXPECT_EQ(server.ask(post("/resume", "", admin)).status, 401);
    EXPECT_EQ(server.ask(post("/resume", "", "X-Api-Key: next\r\n")).status, 200);
  }
  TestServer without_keys({.admin_keys = {"root"}});
  without_keys.engine().say("x");
  EXPECT_EQ(without_keys.ask(post("/v1/completions", generation_of())).status, 200);
  EXPECT_EQ(without_keys.ask(post("/pause", "")).status, 401);
  EXPECT_EQ(without_keys.ask(post("/pause", "", "X-Api-Key: wrong\r\n")).status, 403);
  EXPECT_EQ(without_keys.ask(post("/pause", "", admin)).status, 200);
}

TEST(TrainerRights, AKeyForSomeAdaptersPausesTheseAlone) {
  TestServer server({.holders = R"([{"key": "k", "name": "team", "adapters": ["team-*"]}])",
                     .adapter_loading = true});
  const std::string key = "Authorization: Bearer k\r\n";
  const auto status = [&](std::string_view path) { return server.ask(post(path, "", key)).status; };
  ASSERT_EQ(server.ask(post("/load_lora_adapter", load_of("team-a"), key)).status, 200);
  EXPECT_EQ(status("/pause?mode=keep&lora_name=team-a"), 200);
  EXPECT_EQ(status("/resume?lora_name=team-a"), 200);
  EXPECT_EQ(status("/pause?mode=keep&lora_name=other"), 403);
  EXPECT_EQ(status("/pause?mode=keep"), 403);
  EXPECT_EQ(status("/resume"), 403);
  EXPECT_EQ(status("/reset_prefix_cache"), 403);
}

// Requests that name the base get this adapter.
TEST(DefaultAdapter, AnswersInPlaceOfTheBase) {
  TestServer server({.adapter_loading = true, .aliases = {"other"}, .default_adapter = "policy"});
  server.engine().say("x");
  const auto ask = [&](std::string_view fields) {
    return server.ask(post("/v1/completions", cat(R"({"prompt": "x", )", fields, "}")));
  };
  EXPECT_EQ(ask(R"("model": "base")").status, 404) << "it is not loaded";
  ASSERT_EQ(server.ask(post("/load_lora_adapter", load_of("policy"))).status, 200);
  for (const char* const fields : {R"("model": "base")", R"("model": "other")", R"("seed": 1)"}) {
    const Received reply = ask(fields);
    EXPECT_EQ(text_at(reply.json(), "model"), "base:policy") << fields;
    EXPECT_THAT(server.engine().last_request().adapters,
                ElementsAre(lora::ScaledAdapter{"policy", 1}));
  }
  const Received bare = ask(R"("model": "base", "adapters": [])");
  EXPECT_EQ(text_at(bare.json(), "model"), "base");
  EXPECT_TRUE(server.engine().last_request().adapters.empty());
  EXPECT_EQ(server.ask(post("/load_lora_adapter", load_of("base"))).status, 400);
}

// prime-rl since August 2026: the adapter is loaded under the base's name, and `model` never
// changes.
TEST(DefaultAdapter, MayBeLoadedUnderTheBasesId) {
  TestServer server({.adapter_loading = true, .default_adapter = "pushed"});
  server.engine().say("x");
  const auto adapters_of = [&](std::string_view fields) {
    const Received reply =
        server.ask(post("/v1/completions", cat(R"({"prompt": "x", )", fields, "}")));
    EXPECT_EQ(text_at(reply.json(), "model"), "base") << reply.body;
    return server.engine().last_request().adapters;
  };
  EXPECT_THAT(adapters_of(R"("model": "base")"), ElementsAre());
  for (int step = 0; step < 2; ++step)
    ASSERT_EQ(server.ask(post("/load_lora_adapter", load_of("base"))).status, 200);
  EXPECT_THAT(adapters_of(R"("model": "base")"), ElementsAre(lora::ScaledAdapter{"base", 1}));
  EXPECT_THAT(adapters_of(R"("model": "base", "adapters": [])"), ElementsAre());
  const json::Value models = server.ask(get("/v1/models")).json();
  EXPECT_EQ(text_at(models, "data.0.id"), "base");
  EXPECT_EQ(text_at(models, "data.1.id"), "(absent)");
}

// A key without a right to it has the base.
TEST(DefaultAdapter, IsNotForKeysThatMayNotUseIt) {
  TestServer server({.holders = R"([{"key": "k", "name": "base-only", "adapters": []}])",
                     .default_adapter = "policy"});
  server.engine().say("x");
  server.engine().load_adapter({.name = "policy"}, false, [](const Result<void>&) {});
  const Received reply =
      server.ask(post("/v1/completions", generation_of(), "Authorization: Bearer k\r\n"));
  EXPECT_EQ(reply.status, 200) << reply.body;
  EXPECT_TRUE(server.engine().last_request().adapters.empty());
}

// A server that drains lets go on what stands still.
TEST_F(TrainersAsk, TheEndOfTheServerEndsPauses) {
  server_.engine().say("one two three");
  ASSERT_EQ(status("/load_lora_adapter", load_of("a")), 200);
  ASSERT_EQ(status("/pause?mode=keep"), 200);
  ASSERT_EQ(status("/pause?mode=keep&lora_name=a"), 200);
  const auto kept = begin_one(generation_of());
  const auto adapted = begin_one(generation_of("a"));
  server_.service().shut_down();
  EXPECT_EQ(end_of(kept->receive()), "length");
  EXPECT_EQ(end_of(adapted->receive()), "length");
}

}  // namespace
}  // namespace motley::server
