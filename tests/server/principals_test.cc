// Holders of keys: the adapters that they may use, their weights, and their part of what is
// limited.

#include <string>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "server/json_paths.h"
#include "server/test_server.h"

namespace motley::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::string_view holders = R"([
  {"key": "k-team", "name": "team", "weight": 3, "adapters": ["team-*", "shared"]},
  {"key": "k-base", "name": "base-only", "adapters": []},
  {"key": "k-all", "name": "all"}])";

std::string with_key(std::string_view key) { return cat("Authorization: Bearer ", key, "\r\n"); }

class Holders : public testing::Test {
 protected:
  Holders() {
    server.engine().say("x");
    for (const char* const name : {"team-a", "shared", "other"})
      server.engine().load_adapter({.name = name, .path = "somewhere"}, false, [](const auto&) {});
  }

  Received complete(std::string_view key, std::string_view model) {
    return server.ask(post("/v1/completions",
                           cat(R"({"prompt": "how", "max_tokens": 1, "model": ")", model, "\"}"),
                           with_key(key)));
  }
  std::vector<std::string> listed(std::string_view key) {
    std::vector<std::string> ids;
    const json::Value body = server.ask(get("/v1/models", with_key(key))).json();
    for (const json::Value& each : *body.if_object()->find("data")->if_array())
      ids.push_back(*each.if_object()->find("id")->if_string());
    return ids;
  }

  TestServer server{{.holders = std::string(holders), .adapter_loading = true}};
};

TEST_F(Holders, AreCountedByTheirNames) {
  const auto page = [&] { return server.ask(get("/metrics")).body; };
  EXPECT_THAT(page(), Not(HasSubstr("motley_holder_")));
  for (int i = 0; i < 2; ++i) ASSERT_EQ(complete("k-team", "base").status, 200);
  ASSERT_EQ(complete("k-base", "other").status, 404);
  EXPECT_THAT(page(), HasSubstr("motley_holder_requests_total{holder=\"team\"} 2\n"));
  EXPECT_THAT(page(), HasSubstr("motley_holder_generated_tokens_total{holder=\"team\"} 2\n"));
  EXPECT_THAT(page(), HasSubstr("motley_holder_requests_total{holder=\"base-only\"} 1\n"));
  EXPECT_THAT(page(), HasSubstr("motley_holder_requests_refused_total{holder=\"team\"} 0\n"));
}

TEST_F(Holders, SeeAndUseTheAdaptersOfTheirKeys) {
  EXPECT_THAT(listed("k-team"), testing::UnorderedElementsAre("base", "team-a", "shared"));
  EXPECT_THAT(listed("k-base"), ElementsAre("base"));
  EXPECT_EQ(listed("k-all").size(), 4);
  EXPECT_EQ(server.ask(get("/v1/models")).status, 401);

  for (const char* const model : {"base", "team-a", "shared"})
    EXPECT_EQ(complete("k-team", model).status, 200) << model;
  EXPECT_EQ(complete("k-all", "other").status, 200);
  const Received refused = complete("k-team", "other");
  EXPECT_EQ(refused.status, 404);
  EXPECT_THAT(refused.body, Not(HasSubstr("did you mean other")));
  // As of one that is nowhere.
  EXPECT_EQ(complete("k-team", "another").status, 404);
  EXPECT_EQ(complete("k-base", "team-a").status, 404);

  const auto one = [&](std::string_view key) {
    return server.ask(get("/v1/models/other", with_key(key))).status;
  };
  EXPECT_EQ(one("k-all"), 200);
  EXPECT_EQ(one("k-team"), 404);
  const auto tokenized = [&](std::string_view key) {
    return server.ask(post("/tokenize", R"({"prompt": "how", "model": "other"})", with_key(key)))
        .status;
  };
  EXPECT_EQ(tokenized("k-all"), 200);
  EXPECT_EQ(tokenized("k-team"), 404);
}

TEST_F(Holders, ChangeNoAdaptersOfOthers) {
  const auto unload = [&](std::string_view key, std::string_view name) {
    return server
        .ask(post("/v1/unload_lora_adapter", cat(R"({"lora_name": ")", name, "\"}"), with_key(key)))
        .status;
  };
  EXPECT_EQ(unload("k-team", "other"), 403);
  EXPECT_EQ(listed("k-all").size(), 4);
  EXPECT_EQ(unload("k-team", "team-a"), 200);
  EXPECT_EQ(listed("k-all").size(), 3);
  const Received load =
      server.ask(post("/v1/load_lora_adapter",
                      R"({"lora_name": "stranger", "lora_path": "/nowhere"})", with_key("k-team")));
  EXPECT_EQ(load.status, 403);
  EXPECT_THAT(load.body, HasSubstr("has no right to 'stranger'"));
}

TEST_F(Holders, GoByTheirNamesAndWeights) {
  complete("k-team", "base");
  EXPECT_EQ(server.engine().last_request().client, "team");
  EXPECT_EQ(server.engine().last_request().client_weight, 3);
  complete("k-all", "base");
  EXPECT_EQ(server.engine().last_request().client, "all");
  EXPECT_EQ(server.engine().last_request().client_weight, 1);
}

// Not even by the template that renders its conversations.
TEST(HoldersOfAServer, LearnNothingFromTemplatesOfOthers) {
  TestServer server({.holders = std::string(holders),
                     .adapter_templates = {{"other", "{{ raise_exception('secret') }}"}}});
  server.engine().load_adapter({.name = "other", .path = "x"}, false, [](const auto&) {});
  const auto ask = [&](std::string_view key) {
    return server.ask(post(
        "/v1/chat/completions",
        R"({"model": "other", "messages": [{"role": "user", "content": "how"}]})", with_key(key)));
  };
  EXPECT_THAT(ask("k-all").body, HasSubstr("secret"));
  const Received refused = ask("k-team");
  EXPECT_EQ(refused.status, 404);
  EXPECT_THAT(refused.body, Not(HasSubstr("secret")));
}

// Two keys at one address have the memory of two clients.
TEST(HoldersOfOneAddress, HaveMemoryOfTheirOwn) {
  HttpLimits limits;
  limits.all_bodies_bytes = 8000;
  limits.address_bodies_bytes = 1000;
  TestServer server({.holders = std::string(holders), .limits = limits});
  server.engine().say("x");
  const auto request = [](std::string_view key) {
    return post("/v1/completions", cat(R"({"prompt": "how"})", std::string(2500, ' ')),
                with_key(key));
  };
  const std::string of_team = request("k-team");
  Client first(server.port());
  first.send(std::string_view(of_team).substr(0, of_team.size() - 1));
  ASSERT_TRUE(eventually([&] { return server.http().stats().body_bytes > 0; }));
  EXPECT_EQ(server.ask(of_team).status, 429);
  EXPECT_EQ(server.ask(request("k-all")).status, 200);
}

TEST(HoldersOfAServer, AreReadAgainWhileTheServerRuns) {
  TestServer server({.holders = std::string(holders)});
  server.engine().say("x");
  const auto status = [&](std::string_view key) {
    return server.ask(post("/v1/completions", R"({"prompt": "how"})", with_key(key))).status;
  };
  EXPECT_EQ(status("k-team"), 200);
  server.service().set_keys(
      ApiKeys::parse_holders(R"([{"key": "new", "name": "team", "weight": 2}])", "file").value());
  EXPECT_EQ(status("k-team"), 401);
  EXPECT_EQ(status("new"), 200);
  EXPECT_EQ(server.engine().last_request().client_weight, 2);
}

}  // namespace
}  // namespace motley::server
