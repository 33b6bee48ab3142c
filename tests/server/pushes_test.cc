// Adapters that clients push, over sockets and on a golden model.

#include <atomic>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/golden_engine.h"
#include "engine/replicas/replicated_engine.h"
#include "server/json_paths.h"
#include "server/test_server.h"
#include "tensor/safetensors/checkpoint.h"

namespace motley::server {
namespace {

using engine_tests::GoldenEngine;
using score_tests::GoldenModel;
using testing::HasSubstr;

std::string text_of(const std::filesystem::path& path) { return read_text(path, 1 << 24).value(); }

// An adapter of the golden.
std::filesystem::path folder_of(const std::string& adapter) {
  return score_tests::goldens_folder() / "qwen3_moe" / "adapters" / adapter;
}

using Metadata = std::map<std::string, std::string>;

// Its tensors as one file with that metadata.
std::string body_with(const std::string& adapter, const Metadata& metadata) {
  const auto tensors = tensor::Checkpoint::open(folder_of(adapter), "adapter_model").value();
  std::vector<tensor::NamedTensor> named;
  for (const auto& item : tensors.items()) named.push_back({item.name(), item.tensor()});
  const TemporaryFolder folder;
  tensor::write_safetensors(folder.path() / "body", named, metadata).value();
  return text_of(folder.path() / "body");
}

std::string body_of(const std::string& adapter) {
  return body_with(adapter,
                   {{"adapter_config", text_of(folder_of(adapter) / "adapter_config.json")}});
}

std::string request_of(std::string_view method, std::string_view path) {
  return cat(method, " ", path, " HTTP/1.1\r\nHost: test\r\n\r\n");
}

std::string head_of_put(std::string_view name_and_query, std::size_t length,
                        std::string_view headers = {}) {
  return cat("PUT /v1/adapters/", name_and_query,
             " HTTP/1.1\r\nHost: test\r\nContent-Type: application/octet-stream\r\n",
             "Content-Length: ", length, "\r\n", headers, "\r\n");
}

std::string put(std::string_view name_and_query, std::string_view body) {
  return cat(head_of_put(name_and_query, body.size()), body);
}

std::string put_path(std::string_view name, const json::Value& body) {
  const std::string text = json::write(body);
  return cat("PUT /v1/adapters/", name,
             " HTTP/1.1\r\nHost: test\r\nContent-Type: application/json; charset=utf-8\r\n",
             "Content-Length: ", text.size(), "\r\n\r\n", text);
}

std::string completion(std::string_view model, int tokens = 6, bool stream = false) {
  return post("/v1/completions",
              cat(R"({"model": ")", model, R"(", "prompt": [7, 11, 23, 5, 42, 9], "max_tokens": )",
                  tokens, R"(, "temperature": 0, "ignore_eos": true, "return_token_ids": true, )",
                  R"("logprobs": 0, "stream": )", stream ? "true" : "false", "}"));
}

// Tokens with their log-probabilities.
std::string said_by(const Received& answer) {
  EXPECT_EQ(answer.status, 200) << answer.body;
  const json::Value all = answer.json();
  return cat(text_at(all, "choices.0.token_ids"), " ",
             text_at(all, "choices.0.logprobs.token_logprobs"));
}

class Pushes : public testing::Test {
 protected:
  TestServerOptions options_of(engine::Engine& engine) const {
    return {.tokenizer = {.name = "qwen2", .end = "!"},
            .adapter_loading = true,
            .model = &golden_.model().base_view(),
            .max_sequence_tokens = 64,
            .engine = &engine};
  }

  std::string said(const TestServer& server, std::string_view model) const {
    return said_by(server.ask(completion(model)));
  }
  // As it is where its folder is loaded.
  std::string said_from_folder(const TestServer& server, const std::string& adapter) const {
    const Received loaded = server.ask(post(
        "/v1/load_lora_adapter", cat(R"({"lora_name": "folder", "load_inplace": true, )",
                                     R"("lora_path": ")", folder_of(adapter).string(), "\"}")));
    EXPECT_EQ(loaded.status, 200) << loaded.body;
    return said(server, "folder");
  }
  // What is held for pushes comes to be this.
  static void expect_held(const TestServer& server, std::size_t contents, std::size_t bytes) {
    EXPECT_TRUE(server.comes_to_show(cat("motley_push_contents ", contents)));
    EXPECT_TRUE(server.comes_to_show(cat("motley_push_memory_bytes ", bytes)));
  }

  GoldenModel golden_{"qwen3_moe", {}};
  GoldenEngine world_{golden_, {}};
  TestServer server_{options_of(world_.engine())};
};

TEST_F(Pushes, AnswerAsTheirFoldersDo) {
  for (const std::string adapter : {"all_linear", "experts", "zero", "attention"}) {
    const std::string body = body_of(adapter);
    const Received pushed = server_.ask(put("team/poet", body));
    ASSERT_EQ(pushed.status, 200) << pushed.body;
    EXPECT_EQ(said(server_, "team/poet"), said_from_folder(server_, adapter)) << adapter;
    const json::Value answer = pushed.json();
    EXPECT_EQ(text_at(answer, "name"), "team/poet");
    EXPECT_EQ(text_at(answer, "version"), world_.engine().adapter("folder")->version);
    EXPECT_EQ(text_at(answer, "checksum").size(), 64U);
    EXPECT_EQ(text_at(answer, "bytes"), cat(world_.engine().adapter("folder")->bytes));
  }
}

TEST_F(Pushes, AreListedShownAndDeleted) {
  const std::string body = body_of("experts");
  ASSERT_EQ(server_.ask(put("poet?version=step-1", body)).status, 200);
  const Received one = server_.ask(get("/v1/adapters/poet"));
  EXPECT_EQ(one.status, 200);
  EXPECT_EQ(text_at(one.json(), "version"), "step-1");
  EXPECT_EQ(text_at(one.json(), "state"), "ready");
  const json::Value list = server_.ask(get("/v1/adapters")).json();
  EXPECT_EQ(text_at(list, "data.0"), one.body);
  EXPECT_EQ(text_at(list, "push_memory.bytes"), cat(body.size()));
  EXPECT_NE(text_at(list, "push_memory.limit_bytes"), "0");
  EXPECT_EQ(text_at(server_.ask(get("/v1/models/poet")).json(), "root"), "poet");
  const Received deleted = server_.ask(request_of("DELETE", "/v1/adapters/poet"));
  EXPECT_EQ(deleted.status, 200);
  EXPECT_EQ(text_at(deleted.json(), "state"), "absent");
  EXPECT_EQ(server_.ask(request_of("DELETE", "/v1/adapters/poet")).status, 404);
  EXPECT_EQ(server_.ask(get("/v1/adapters/poet")).status, 404);
  EXPECT_EQ(server_.ask(completion("poet")).status, 404);
  expect_held(server_, 0, 0);
}

TEST_F(Pushes, AStreamEndsWithTheVersionThatItBeganWith) {
  ASSERT_EQ(server_.ask(put("poet?version=one", body_of("experts"))).status, 200);
  const std::string old_answer =
      text_at(server_.ask(completion("poet", 40)).json(), "choices.0.token_ids");
  Client stream(server_.port());
  stream.send(completion("poet", 40, true));
  // It has begun.
  std::string come;
  while (come.find("data: ") == std::string::npos) come += stream.receive_some();
  const Received replaced = server_.ask(put("poet?version=two", body_of("attention")));
  ASSERT_EQ(replaced.status, 200) << replaced.body;
  while (come.find("data: [DONE]") == std::string::npos) come += stream.receive_some();
  EXPECT_THAT(come, HasSubstr("\"adapter_version\":\"one\""));
  EXPECT_EQ(come.find("\"adapter_version\":\"two\""), std::string::npos);
  const json::Value next = server_.ask(completion("poet", 40)).json();
  EXPECT_EQ(text_at(next, "adapter_version"), "two");
  EXPECT_NE(text_at(next, "choices.0.token_ids"), old_answer);
}

TEST_F(Pushes, VersionsOfOneAnswerAreToldApartAsWhole) {
  ASSERT_EQ(server_.ask(put("a?version=12", body_of("experts"))).status, 200);
  ASSERT_EQ(server_.ask(put("b?version=1", body_of("one_layer"))).status, 200);
  const Received both = server_.ask(post(
      "/v1/completions",
      R"({"adapters": [{"name": "a"}, {"name": "b"}], "prompt": [[7, 11], [5, 9]], "max_tokens": 2})"));
  EXPECT_EQ(text_at(both.json(), "adapter_version"), "12,1") << both.body;
}

TEST_F(Pushes, ComeBackAfterAnEviction) {
  // Room for one of them.
  GoldenEngine small(golden_, {.adapter_bytes = 120 << 10});
  TestServerOptions options = options_of(small.engine());
  // A folder of the same name holds another adapter.
  options.find_adapter = [](const std::string& name) -> Result<std::optional<engine::AdapterSpec>> {
    return std::optional(engine::AdapterSpec{.name = name, .path = folder_of("zero")});
  };
  const TestServer server(options);
  const TemporaryFolder folder;
  std::filesystem::copy(folder_of("experts"), folder.path() / "poet");
  ASSERT_EQ(server.ask(put("cynic", body_of("attention"))).status, 200);
  const Received pushed =
      server.ask(put_path("poet", json::Object{{"path", (folder.path() / "poet").string()}}));
  ASSERT_EQ(pushed.status, 200) << pushed.body;
  std::filesystem::remove_all(folder.path() / "poet");
  const std::string poet = said(server_, "base");
  const std::string as_poet = said_from_folder(server_, "experts");
  const std::string as_cynic = said_from_folder(server_, "attention");
  EXPECT_NE(as_poet, poet);
  for (int turn = 0; turn < 3; ++turn) {
    EXPECT_EQ(said(server, "cynic"), as_cynic) << turn;
    EXPECT_EQ(said(server, "poet"), as_poet) << turn;
  }
  EXPECT_GT(small.engine().stats().adapter_evictions, 2U);
  EXPECT_EQ(small.reads(), 0) << "no load reads a folder";
}

TEST_F(Pushes, ReachAllRanks) {
  GoldenModel of_two("qwen3_moe", {.threads = 1, .ranks = 2});
  GoldenEngine ranks(of_two, {});
  const TestServer server(options_of(ranks.engine()));
  ASSERT_EQ(server.ask(put("poet", body_of("all_linear"))).status, 200);
  EXPECT_EQ(said(server, "poet"), said_from_folder(server, "all_linear"));
  // The old version serves on where the new one is broken.
  EXPECT_EQ(server.ask(put("poet", body_of("refused_nan"))).status, 400);
  EXPECT_EQ(said(server, "poet"), said(server, "folder"));
}

TEST_F(Pushes, ReachAllReplicasOrNone) {
  GoldenEngine second(golden_, {});
  engine::ReplicatedEngine both({&world_.engine(), &second.engine()});
  TestServerOptions options = options_of(both);
  const TestServer server(options);
  const std::string body = body_of("experts");
  ASSERT_EQ(server.ask(put("poet?version=one", body)).status, 200);
  for (engine::Engine* const each :
       std::initializer_list<engine::Engine*>{&world_.engine(), &second.engine()}) {
    ASSERT_TRUE(each->adapter("poet"));
    EXPECT_EQ(each->adapter("poet")->version, "one");
  }
  const std::string one = said(server, "poet");
  EXPECT_EQ(server.ask(put("poet?version=two", body_of("refused_width"))).status, 400);
  EXPECT_EQ(server.ask(put("poet?expected_version=zero", body)).status, 409);
  // Turns of both replicas.
  for (int i = 0; i < 4; ++i) EXPECT_EQ(said(server, "poet"), one);
  EXPECT_EQ(text_at(server.ask(get("/v1/adapters/poet")).json(), "version"), "one");
  expect_held(server, 1, body.size());
  EXPECT_EQ(server.ask(request_of("DELETE", "/v1/adapters/poet")).status, 200);
  expect_held(server, 0, 0);
}

TEST_F(Pushes, ExactlyOneOfManyReplacesAVersion) {
  GoldenEngine second(golden_, {});
  engine::ReplicatedEngine both({&world_.engine(), &second.engine()});
  for (engine::Engine* const engine :
       std::initializer_list<engine::Engine*>{&second.engine(), &both}) {
    const TestServer server(options_of(*engine));
    // An empty version: there is none of the name.
    std::string present;
    for (int round = 0; round < 3; ++round) {
      constexpr int pushers = 8;
      std::vector<Received> answers(pushers);
      std::vector<std::thread> threads;
      const std::string body = body_of(round == 1 ? "experts" : "one_layer");
      for (int i = 0; i < pushers; ++i)
        threads.emplace_back([&, i] {
          answers[static_cast<std::size_t>(i)] = server.ask(
              put(cat("poet?version=", round, "-", i, "&expected_version=", present), body));
        });
      for (std::thread& each : threads) each.join();
      int won = 0;
      std::string next;
      for (const Received& each : answers) {
        EXPECT_TRUE(each.status == 200 || each.status == 409) << each.status << " " << each.body;
        if (each.status != 200) continue;
        ++won;
        next = text_at(each.json(), "version");
      }
      EXPECT_EQ(won, 1);
      for (const Received& each : answers)
        if (each.status == 409) {
          EXPECT_THAT(each.error("message"), HasSubstr(cat("its version is '", next, "' now")));
          EXPECT_EQ(each.error("code"), "conflict");
        }
      present = next;
    }
    EXPECT_EQ(server.ask(request_of("DELETE", "/v1/adapters/poet")).status, 200);
  }
}

TEST_F(Pushes, OfOneNameAtOnceTakeTurns) {
  std::vector<std::thread> threads;
  std::vector<Received> answers(6);
  for (std::size_t i = 0; i < answers.size(); ++i)
    threads.emplace_back([&, i] {
      answers[i] =
          server_.ask(put(cat("poet?version=", i), body_of(i % 2 == 0 ? "experts" : "one_layer")));
    });
  for (std::thread& each : threads) each.join();
  for (const Received& each : answers) EXPECT_EQ(each.status, 200) << each.body;
}

TEST_F(Pushes, AreDoneOnceForAnId) {
  const Received first = server_.ask(put("poet?operation_id=a&version=one", body_of("experts")));
  ASSERT_EQ(first.status, 200);
  EXPECT_EQ(server_.ask(put("poet?operation_id=b&version=two", body_of("one_layer"))).status, 200);
  // Late, and from the head alone.
  Client again(server_.port());
  again.send(head_of_put("poet?operation_id=a&version=one", 1000, "Expect: 100-continue\r\n"));
  const Received repeated = again.receive();
  EXPECT_EQ(repeated.status, 200);
  EXPECT_EQ(repeated.body, first.body);
  EXPECT_EQ(world_.engine().adapter("poet")->version, "two");
  // Of another name it is another one.
  EXPECT_EQ(server_.ask(put("cynic?operation_id=a", body_of("one_layer"))).status, 200);
  EXPECT_TRUE(server_.comes_to_show("motley_adapter_pushes_total{outcome=\"repeated\"} 1"));
}

TEST_F(Pushes, ThatAreRepeatedAtOnceAreDoneOnce) {
  std::vector<std::thread> threads;
  std::vector<Received> answers(6);
  const std::string body = body_of("experts");
  for (std::size_t i = 0; i < answers.size(); ++i)
    threads.emplace_back(
        [&, i] { answers[i] = server_.ask(put(cat("poet?operation_id=x&version=v", i), body)); });
  for (std::thread& each : threads) each.join();
  for (const Received& each : answers) {
    EXPECT_EQ(each.status, 200);
    EXPECT_EQ(each.body, answers[0].body);
  }
  EXPECT_TRUE(server_.comes_to_show("motley_adapter_pushes_total{outcome=\"done\"} 1"));
}

TEST_F(Pushes, ThatFailMayBeRepeatedWithTheirId) {
  {
    Client leaves(server_.port());
    leaves.send(cat(head_of_put("poet?operation_id=a", 1000), "some"));
    leaves.close();
  }
  EXPECT_EQ(server_.ask(put("poet?operation_id=a", body_of("experts"))).status, 200);
}

// Clients ask while pushes replace their adapter: each answer is that of the version that it names.
TEST_F(Pushes, MixNoAnswers) {
  GoldenEngine second(golden_, {});
  engine::ReplicatedEngine both({&world_.engine(), &second.engine()});
  const TestServer server(options_of(both));
  const std::vector<std::string> adapters = {"experts", "attention", "one_layer"};
  std::map<std::string, std::string> expected;
  for (const std::string& each : adapters) {
    ASSERT_EQ(server.ask(put(cat("poet?version=", each), body_of(each))).status, 200);
    expected[each] = said(server, "poet");
  }
  std::atomic<bool> ended = false;
  std::thread trainer([&] {
    for (int i = 0; i < 60; ++i) {
      const std::string& each = adapters[static_cast<std::size_t>(i) % adapters.size()];
      EXPECT_EQ(server.ask(put(cat("poet?version=", each), body_of(each))).status, 200);
    }
    ended = true;
  });
  std::vector<std::thread> clients;
  for (int i = 0; i < 3; ++i)
    clients.emplace_back([&] {
      while (!ended) {
        const Received answer = server.ask(completion("poet"));
        EXPECT_EQ(said_by(answer), expected.at(text_at(answer.json(), "adapter_version")));
      }
    });
  trainer.join();
  for (std::thread& each : clients) each.join();
  expect_held(server, 1, body_of(adapters.back()).size());
}

struct Refusal {
  std::string query;
  std::string body;
  int status = 400;
  std::string message;
};

TEST_F(Pushes, SayWhatIsWrong) {
  const std::string good = body_of("experts");
  ASSERT_EQ(server_.ask(put("poet?version=good", good)).status, 200);
  std::string long_header = good;
  long_header[4] = 1;
  const std::vector<Refusal> refusals = {
      {"poet", "", 400, "too short for safetensors"},
      {"poet", "not a file", 400, "a header of"},
      {"poet", long_header, 400, "a header of"},
      {"poet", good.substr(0, good.size() - 4), 400, "the file holds"},
      {"poet", good + "more", 400, "4 bytes after the last tensor"},
      {"poet", body_with("experts", {}), 400, "no adapter_config in the metadata"},
      {"poet", body_with("experts", {{"adapter_config", "{"}}), 400, "adapter_config"},
      {"poet", body_with("experts", {{"adapter_config", R"({"r": 4})"}}), 400, "lora_alpha"},
      {"poet", body_of("refused_nan"), 400, "is NaN"},
      {"poet", body_of("refused_infinity"), 400, "infinite"},
      {"poet", body_of("refused_width"), 400, "tensor '"},
      {"poet", body_of("refused_unknown_tensor"), 400, "tensor '"},
      {"poet", body_of("refused_layer_out_of_range"), 400, "tensor '"},
      {"poet?on_replace=never", good, 400, "unknown: 'never'"},
      {"poet?version=a,b", good, 400, "not a version"},
      {"poet?version=", good, 400, "not a version"},
      {"poet?operation_id=", good, 400, "an id of 0 bytes"},
      {"poet?version=a&version=b", good, 400, "version"},
      {"poet?partial=maybe", good, 400, "neither true nor false"},
      {"poet?expected_version=bad", good, 409, "its version is 'good' now"},
      {"cynic?expected_version=bad", good, 409, "there is no such adapter now"},
      {"base", good, 400, "the base model has that name"},
      {"a%20b", good, 400, "not an adapter's name"},
      {"", good, 404, ""},
  };
  for (const Refusal& each : refusals) {
    const Received answer = server_.ask(put(each.query, each.body));
    EXPECT_EQ(answer.status, each.status) << each.query << " " << each.message << answer.body;
    if (each.message.empty()) continue;
    EXPECT_THAT(answer.error("message"), HasSubstr(each.message)) << each.query;
  }
  EXPECT_EQ(text_at(server_.ask(completion("poet")).json(), "adapter_version"), "good");
  EXPECT_EQ(said(server_, "poet"), said_from_folder(server_, "experts"));
  expect_held(server_, 1, good.size());
}

TEST_F(Pushes, ByPathSayWhatIsWrong) {
  const auto refusal_of = [&](const json::Value& body) {
    return server_.ask(put_path("poet", body));
  };
  EXPECT_EQ(refusal_of(json::Object{{"path", "/nowhere/poet"}}).status, 404);
  EXPECT_EQ(refusal_of(json::Object{}).status, 400);
  EXPECT_EQ(refusal_of(json::Object{{"path", "a"}, {"on_replace", "never"}}).status, 400);
  EXPECT_EQ(refusal_of("text").status, 400);
  const Received nan = refusal_of(json::Object{{"path", folder_of("refused_nan").string()}});
  EXPECT_EQ(nan.status, 400);
  EXPECT_THAT(nan.error("message"), HasSubstr("is NaN"));
  EXPECT_EQ(nan.error("param"), "path");
  expect_held(server_, 0, 0);
}

TEST_F(Pushes, AreRefusedBeforeTheirBody) {
  ASSERT_EQ(server_.ask(put("poet?version=one", body_of("experts"))).status, 200);
  const auto status_of = [&](const TestServer& server, std::string_view query,
                             std::size_t length = 1000, std::string_view headers = {}) {
    Client client(server.port());
    client.send(head_of_put(query, length, cat("Expect: 100-continue\r\n", headers)));
    return client.receive().status;
  };
  EXPECT_EQ(status_of(server_, "poet?expected_version=two"), 409);
  EXPECT_EQ(status_of(server_, "base"), 400);
  EXPECT_EQ(status_of(server_, "poet?on_replace=never"), 400);
  EXPECT_EQ(status_of(server_, "poet", std::size_t{1} << 50), 413);
  EXPECT_EQ(status_of(server_, "poet", 1000, "Origin: http://elsewhere\r\n"), 403);
  const TestServer closed({.tokenizer = {.name = "qwen2", .end = "!"}, .engine = &world_.engine()});
  EXPECT_EQ(status_of(closed, "poet"), 403);
  EXPECT_EQ(closed.ask(request_of("DELETE", "/v1/adapters/poet")).status, 403);
  EXPECT_EQ(closed.ask(get("/v1/adapters/poet")).status, 200);

  Client asked(server_.port());
  const std::string body = body_of("one_layer");
  asked.send(head_of_put("poet", body.size(), "Expect: 100-continue\r\n"));
  EXPECT_EQ(asked.receive_some(), "HTTP/1.1 100 Continue\r\n\r\n");
  asked.send(body);
  EXPECT_EQ(asked.receive().status, 200);
}

// What its header tells: most of the body has not come.
TEST_F(Pushes, AreRefusedAtTheEndOfTheirHeader) {
  const std::string no_config = body_with("experts", {});
  const auto refusal_of = [&](std::string_view sent, std::size_t announced) {
    Client client(server_.port());
    client.send(cat(head_of_put("poet", announced), sent));
    const Received refused = client.receive();
    EXPECT_EQ(refused.status, 400) << refused.body;
    return refused.error("message");
  };
  const std::string_view begun = std::string_view(no_config).substr(0, no_config.size() - 1);
  EXPECT_THAT(refusal_of(begun, no_config.size()), HasSubstr("no adapter_config in the metadata"));
  EXPECT_THAT(refusal_of(begun, no_config.size() + 10),
              HasSubstr("10 bytes after the last tensor"));
  EXPECT_THAT(refusal_of(std::string(64, 'x'), 1000), HasSubstr("a header of"));
  EXPECT_THAT(refusal_of(std::string(64, '\0'), 1000), HasSubstr("does not begin with {"));
  // For another base.
  for (const std::string adapter :
       {"refused_width", "refused_layer_out_of_range", "refused_rank_of_factors"}) {
    const std::string body = body_of(adapter);
    EXPECT_THAT(refusal_of(std::string_view(body).substr(0, body.size() - 1), body.size()),
                HasSubstr("tensor '"))
        << adapter;
  }
  expect_held(server_, 0, 0);
}

TEST_F(Pushes, WaitWhileOldVersionsHoldTheMemory) {
  TestServer server({.adapter_loading = true});
  const auto answer_of = [&] {
    Client client(server.port());
    client.send(head_of_put("poet", 1000, "Expect: 100-continue\r\n"));
    return client.receive_some();
  };
  server.engine().hold_old_versions(5);
  EXPECT_THAT(answer_of(), HasSubstr("100 Continue"));
  server.engine().hold_old_versions(6);
  const std::string refused = answer_of();
  EXPECT_THAT(refused, HasSubstr("HTTP/1.1 429"));
  EXPECT_THAT(refused, HasSubstr("Retry-After"));
}

TEST_F(Pushes, AreRefusedWhereTheDiskIsFull) {
  const TemporaryFolder disk;
  TestServerOptions options = options_of(world_.engine());
  options.push_memory = {.max_bytes = std::uint64_t{1} << 62, .folder = disk.path()};
  const TestServer server(options);
  Client client(server.port());
  client.send(head_of_put("poet", std::size_t{1} << 61, "Expect: 100-continue\r\n"));
  const Received refused = client.receive();
  EXPECT_EQ(refused.status, 507);
  EXPECT_EQ(refused.error("code"), "storage_full");
  EXPECT_EQ(refused.body.find(disk.path().string()), std::string::npos) << refused.body;
  expect_held(server, 0, 0);
  // Without a folder it is memory that is missing.
  options.push_memory.folder.clear();
  const TestServer in_memory(options);
  Client other(in_memory.port());
  other.send(head_of_put("poet", std::size_t{1} << 61, "Expect: 100-continue\r\n"));
  const Received short_of_memory = other.receive();
  EXPECT_EQ(short_of_memory.status, 503);
  EXPECT_TRUE(short_of_memory.headers.contains("retry-after"));
}

TEST_F(Pushes, MayBeAFileOnTheServer) {
  const TemporaryFolder folder;
  const std::string body = body_of("experts");
  const std::filesystem::path path = folder.file("poet.safetensors", body);
  const Received pushed =
      server_.ask(put_path("poet", json::Object{{"path", path.string()}, {"version", "one"}}));
  EXPECT_EQ(pushed.status, 200) << pushed.body;
  EXPECT_EQ(text_at(pushed.json(), "version"), "one");
  EXPECT_EQ(said(server_, "poet"), said_from_folder(server_, "experts"));
  expect_held(server_, 1, body.size());
}

TEST_F(Pushes, KeysSeeTheirOwnAdapters) {
  TestServerOptions options = options_of(world_.engine());
  options.holders = R"([{"key": "k1", "name": "team", "adapters": ["team/*"]}])";
  const TestServer server(options);
  const std::string key = "Authorization: Bearer k1\r\n";
  const std::string body = body_of("one_layer");
  EXPECT_EQ(server.ask(cat(head_of_put("team/a", body.size(), key), body)).status, 200);
  EXPECT_EQ(server.ask(cat(head_of_put("other", body.size(), key), body)).status, 403);
  ASSERT_TRUE(world_.load("experts", false).ok());
  EXPECT_EQ(server.ask(get("/v1/adapters/experts", key)).status, 404);
  EXPECT_EQ(server.ask(get("/v1/adapters", key)).body.find("experts"), std::string::npos);
  EXPECT_EQ(server.ask(get("/v1/adapters/team%2Fa", key)).status, 200);
}

TEST_F(Pushes, WaitForMemoryThatOthersHold) {
  const std::string body = body_of("experts");
  TestServerOptions options = options_of(world_.engine());
  options.push_memory.max_bytes = 2 * body.size();
  const TestServer server(options);
  ASSERT_EQ(server.ask(put("poet", body)).status, 200);
  {
    // A body on its way holds the rest.
    Client slow(server.port());
    slow.send(cat(head_of_put("slow", body.size()), body.substr(0, 100)));
    ASSERT_TRUE(server.comes_to_show(cat("motley_push_memory_bytes ", 2 * body.size())));
    Client client(server.port());
    client.send(head_of_put("cynic", body.size(), "Expect: 100-continue\r\n"));
    const Received refused = client.receive();
    EXPECT_EQ(refused.status, 429);
    EXPECT_TRUE(refused.headers.contains("retry-after"));
    EXPECT_THAT(refused.error("message"), HasSubstr("--push-memory"));
  }
  // It has gone: its bytes are free.
  ASSERT_TRUE(server.comes_to_show(cat("motley_push_memory_bytes ", body.size())));
  EXPECT_EQ(server.ask(put("cynic", body)).status, 200);
  // In chunks, without a length.
  const std::string chunked = cat(
      "PUT /v1/adapters/third HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n",
      body.substr(0, 16), "\r\n");
  EXPECT_EQ(server.ask(chunked).status, 429);
  expect_held(server, 2, 2 * body.size());
}

TEST_F(Pushes, InChunksAreCountedAsTheyCome) {
  const std::string body = body_of("experts");
  constexpr std::string_view hex = "0123456789abcdef";
  std::string chunked =
      "PUT /v1/adapters/poet HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (std::size_t at = 0; at < body.size(); at += 4096) {
    const std::string piece = body.substr(at, 4096);
    std::string size;
    for (std::size_t rest = piece.size(); rest > 0; rest /= 16) size.insert(0, 1, hex[rest % 16]);
    chunked += cat(size, "\r\n", piece, "\r\n");
  }
  const Received answer = server_.ask(chunked + "0\r\n\r\n");
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(said(server_, "poet"), said_from_folder(server_, "experts"));
}

TEST_F(Pushes, OfAClientThatLeavesLeaveNothing) {
  ASSERT_EQ(server_.ask(put("poet?version=one", body_of("experts"))).status, 200);
  const std::string body = body_of("attention");
  for (const std::size_t sent : {std::size_t{0}, std::size_t{5}, body.size() - 1}) {
    Client client(server_.port());
    client.send(cat(head_of_put("poet?version=two", body.size()), body.substr(0, sent)));
    client.reset();
  }
  expect_held(server_, 1, body_of("experts").size());
  EXPECT_EQ(text_at(server_.ask(completion("poet")).json(), "adapter_version"), "one");
}

TEST_F(Pushes, ManyLeaveOneContent) {
  const TemporaryFolder disk;
  const std::string bodies[] = {body_of("experts"), body_of("one_layer")};
  for (const std::filesystem::path& folder : {std::filesystem::path(), disk.path()}) {
    TestServerOptions options = options_of(world_.engine());
    options.push_memory.folder = folder;
    const TestServer server(options);
    for (int i = 0; i < 200; ++i) {
      const Received pushed = server.ask(put(cat("poet?version=", i), bodies[i % 2]));
      ASSERT_EQ(pushed.status, 200) << pushed.body;
      if (i % 20 == 0) {
        EXPECT_EQ(server.ask(completion("poet", 1)).status, 200);
      }
    }
    expect_held(server, 1, bodies[1].size());
    EXPECT_EQ(said(server, "poet"), said_from_folder(server, "one_layer"));
    EXPECT_EQ(list_folder(disk.path()).value().size(), 0U);
    EXPECT_EQ(server.ask(request_of("DELETE", "/v1/adapters/poet")).status, 200);
    expect_held(server, 0, 0);
  }
}

}  // namespace
}  // namespace motley::server
