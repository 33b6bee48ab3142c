// Tokens for text and back, what the server says of itself, and how its routes may be written.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "base/version.h"
#include "server/json_paths.h"
#include "server/test_server.h"

namespace motley::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

json::Value answer(const TestServer& server, std::string_view path, std::string_view body) {
  const Received reply = server.ask(post(path, body));
  EXPECT_EQ(reply.status, 200) << path << reply.body;
  return reply.json();
}

std::string list(const std::vector<std::int32_t>& ids) { return cat("[", join(ids, ","), "]"); }

TEST(Tokenize, GivesTheTokensThatACompletionHas) {
  TestServer server({.tokenizer = llama_tokenizer()});
  server.engine().say("x");
  const text::Tokenizer& tokenizer = server.text().tokenizer();
  const auto ids = tokenizer.encode("how are you").value();
  const json::Value body = answer(server, "/tokenize", R"({"prompt": "how are you"})");
  EXPECT_EQ(text_at(body, "count"), std::to_string(ids.size()));
  EXPECT_EQ(text_at(body, "max_model_len"), "1000");
  EXPECT_EQ(text_at(body, "tokens"), list(ids));
  EXPECT_EQ(text_at(body, "token_strs"), "null");
  server.ask(post("/v1/completions", R"({"prompt": "how are you"})"));
  EXPECT_EQ(server.engine().last_request().tokens, ids);

  const json::Value plain =
      answer(server, "/v1/tokenize",
             R"({"prompt": "how are", "add_special_tokens": false, "return_token_strs": true})");
  EXPECT_EQ(text_at(plain, "tokens"),
            list(tokenizer.encode("how are", {.add_special_tokens = false}).value()));
  EXPECT_EQ(text_at(plain, "token_strs"), R"(["h","ow","Ġa","re"])");
  EXPECT_EQ(text_at(answer(server, "/tokenize", R"({"prompt": "", "add_special_tokens": false})"),
                    "tokens"),
            "[]");
}

TEST(Tokenize, GivesTheTokensThatAChatHas) {
  TestServer server;
  server.engine().say("x");
  const std::string fields = R"("messages": [{"role": "user", "content": "<|im_end|>"}],
    "tools": [{"type": "function", "function": {"name": "look"}}])";
  const json::Value body = answer(server, "/tokenize", cat("{", fields, "}"));
  server.ask(post("/v1/chat/completions", cat("{", fields, "}")));
  const auto tokens = server.engine().last_request().tokens;
  EXPECT_EQ(text_at(body, "tokens"), list(tokens));
  EXPECT_EQ(text_at(body, "count"), std::to_string(tokens.size()));
  const json::Value open =
      answer(server, "/tokenize",
             cat("{", fields, R"(, "add_generation_prompt": false, "return_token_strs": true})"));
  const std::size_t count = at(open, "tokens").if_array()->size();
  EXPECT_LT(count, tokens.size());
  EXPECT_EQ(at(open, "token_strs").if_array()->size(), count);
}

TEST(Tokenize, AnAdaptersOwnTemplateWritesItsChats) {
  TestServer server({.adapter_templates = {{"poet", "{{ messages[0].content }} of a poet"}}});
  server.engine().say("x");
  const auto load = [&](const std::string& name) {
    server.engine().load_adapter({.name = name}, false,
                                 [](const Result<void>& loaded) { ASSERT_TRUE(loaded.ok()); });
  };
  load("poet");
  load("cynic");
  const text::Tokenizer& tokenizer = server.text().tokenizer();
  const auto tokens_of = [&](std::string_view model) {
    const std::string fields = cat(R"("messages": [{"role": "user", "content": "how"}], )", model);
    const json::Value body = answer(server, "/tokenize", cat("{", fields, "}"));
    const Received chat = server.ask(post("/v1/chat/completions", cat("{", fields, "}")));
    EXPECT_EQ(chat.status, 200) << chat.body;
    EXPECT_EQ(text_at(body, "tokens"), list(server.engine().last_request().tokens)) << model;
    return server.engine().last_request().tokens;
  };
  const auto own = tokenizer.encode("how of a poet", {.add_special_tokens = false}).value();
  EXPECT_EQ(tokens_of(R"("model": "poet")"), own);
  EXPECT_EQ(tokens_of(R"("model": "base:poet")"), own);
  const auto of_base = tokens_of(R"("model": "base")");
  EXPECT_NE(of_base, own);
  EXPECT_EQ(tokens_of(R"("model": "cynic")"), of_base);
  // A mix has the base's.
  EXPECT_EQ(tokens_of(R"("adapters": [{"name": "poet", "scale": 0.5},
                                      {"name": "cynic", "scale": 0.5}])"),
            of_base);
}

TEST(Tokenize, FollowsTheFieldsThatMakeThePrompt) {
  TestServer server;
  server.engine().say("x");
  std::string text;
  for (int i = 0; i < 2000; ++i) text += " a";
  const std::string question = cat(R"("messages": [{"role": "user", "content": ")", text, "\"}]");
  for (const std::string& fields :
       {cat(question, R"(, "truncate_prompt_tokens": 5)"),
        cat(question, R"(, "truncate_prompt_tokens": -1, "max_tokens": 7)"),
        std::string(R"("messages": [{"role": "user", "content": "x"},
          {"role": "assistant", "content": "and"}], "continue_final_message": true,
          "add_generation_prompt": false)"),
        cat(R"("messages": [{"role": "user", "content": "x"}], "tool_choice": "required",)",
            R"("tools": [{"type": "function", "function": {"name": "look"}}])")}) {
    const json::Value body = answer(server, "/tokenize", cat("{", fields, "}"));
    const Received chat = server.ask(post("/v1/chat/completions", cat("{", fields, "}")));
    EXPECT_EQ(chat.status, 200) << chat.body;
    EXPECT_EQ(text_at(body, "tokens"), list(server.engine().last_request().tokens)) << fields;
  }
  const std::string cut =
      cat(R"({"truncate_prompt_tokens": -1, "max_tokens": 7, "prompt": ")", text, "\"}");
  EXPECT_EQ(text_at(answer(server, "/tokenize", cut), "count"), "993");
}

TEST(Tokenize, CountsBeyondTheContextInPieces) {
  TestServer server;
  std::string text;
  for (int i = 0; i < 50'000; ++i) text += " a";
  const Received reply =
      server.ask(post("/tokenize", cat(R"({"return_token_strs": true, "prompt": ")", text, "\"}")));
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(text_at(reply.json(), "count"), "50000");
  EXPECT_EQ(at(reply.json(), "token_strs").if_array()->size(), 50'000U);
  EXPECT_EQ(text_at(answer(server, "/tokenize",
                           cat(R"({"messages": [{"role": "user", "content": ")", text, "\"}]}")),
                    "max_model_len"),
            "1000");
}

TEST(Tokenize, RefusesByName) {
  TestServer server({.strict_fields = true});
  for (const auto& [body, param] : std::initializer_list<std::pair<std::string, std::string>>{
           {R"({})", "prompt"},
           {R"({"prompt": ["a"]})", "prompt"},
           {R"({"prompt": "a", "odd": 1})", "odd"},
           {R"({"messages": []})", "messages"},
           {R"({"messages": [{"role": "user", "content": "a"}], "odd": 1})", "odd"},
           {R"({"messages": [{"role": "user", "content": "a"}], "prompt": "a"})", "messages"},
           {R"({"prompt": "a", "return_token_strs": 1})", "return_token_strs"}}) {
    const Received refused = server.ask(post("/tokenize", body));
    EXPECT_EQ(refused.status, 400) << body << refused.body;
    EXPECT_EQ(refused.error("param"), param) << body;
  }
  const Received unknown = server.ask(post("/tokenize", R"({"prompt": "a", "model": "nobody"})"));
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(unknown.error("code"), "model_not_found");
  EXPECT_EQ(answer(server, "/tokenize", R"({"prompt": "a", "model": "base"})").kind(),
            json::Kind::object);
  const std::string strict =
      R"({"messages": [{"role": "user", "content": "a"}], "return_token_strs": true})";
  EXPECT_EQ(at(answer(server, "/tokenize", strict), "token_strs").kind(), json::Kind::array);
}

TEST(Detokenize, GivesTheTextThatTheTokensStandFor) {
  TestServer server;
  const text::Tokenizer& tokenizer = server.text().tokenizer();
  const std::string text = "say \"hé\"\n\U0001F9FF<|im_end|>";
  const auto ids = tokenizer.encode(text).value();
  const std::string tokens = cat("\"tokens\": ", list(ids));
  EXPECT_EQ(text_at(answer(server, "/detokenize", cat("{", tokens, "}")), "prompt"), text);
  EXPECT_EQ(text_at(answer(server, "/v1/detokenize",
                           cat("{", tokens, R"(, "skip_special_tokens": true})")),
                    "prompt"),
            text.substr(0, text.find("<|")));
  EXPECT_EQ(text_at(answer(server, "/detokenize", R"({"tokens": []})"), "prompt"), "");
  const std::vector<std::int32_t> many(200'000, tokenizer.encode(" fine").value()[0]);
  EXPECT_EQ(
      text_at(answer(server, "/detokenize", cat(R"({"tokens": )", list(many), "}")), "prompt"),
      tokenizer.decode(many, false));
  for (const auto& [body, param] : std::initializer_list<std::pair<std::string, std::string>>{
           {"{}", "tokens"},
           {R"({"tokens": "a"})", "tokens"},
           {R"({"tokens": [1, -1]})", "tokens[1]"},
           {R"({"tokens": [99999999]})", "tokens[0]"}}) {
    const Received refused = server.ask(post("/detokenize", body));
    EXPECT_EQ(refused.status, 400) << body;
    EXPECT_EQ(refused.error("param"), param) << body;
  }
}

TEST(TokenizerInfo, IsTheModelsConfigurationAndTemplate) {
  TestServer server;
  const json::Value info = server.ask(get("/tokenizer_info")).json();
  EXPECT_EQ(text_at(info, "eos_token"), "<|im_end|>");
  EXPECT_EQ(text_at(info, "tokenizer_class"), "PreTrainedTokenizerFast");
  EXPECT_THAT(text_at(info, "chat_template"), HasSubstr("<|im_start|>assistant"));
}

TEST(SmallRoutes, SayVersionAndHealth) {
  TestServer server;
  EXPECT_EQ(text_at(server.ask(get("/version")).json(), "version"), version());
  for (const std::string& request : {get("/ping"), post("/ping", ""), post("/ping", "{}")}) {
    const Received alive = server.ask(request);
    EXPECT_EQ(alive.status, 200);
    EXPECT_EQ(alive.body, "");
    EXPECT_EQ(alive.headers.at("content-length"), "0");
  }
  EXPECT_EQ(server.ask(post("/ping", std::string(5000, 'x'))).status, 413);
  EXPECT_EQ(server.ask(get("/readyz")).status, 200);
  server.service().shut_down();
  EXPECT_EQ(server.ask(get("/ping")).status, 503);
  EXPECT_EQ(server.ask(get("/readyz")).status, 503);
  for (const char* const path : {"/livez", "/liveness"})
    EXPECT_EQ(server.ask(get(path)).status, 200) << path;
  EXPECT_EQ(server.ask(post("/ping", "")).status, 503);
  EXPECT_EQ(server.ask(post("/tokenize", R"({"prompt": "x"})")).status, 503);
}

TEST(SmallRoutes, KeepKeysPagesAndMethodsAsOthersDo) {
  TestServer guarded({.keys = {"secret"}});
  const std::string key = "Authorization: Bearer secret\r\n";
  for (const char* const path : {"/version", "/tokenizer_info"}) {
    EXPECT_EQ(guarded.ask(get(path)).status, 401) << path;
    EXPECT_EQ(guarded.ask(get(path, key)).status, 200) << path;
    EXPECT_EQ(guarded.ask(cat("HEAD ", path, " HTTP/1.1\r\nHost: test\r\n", key, "\r\n")).status,
              200);
    EXPECT_EQ(guarded.ask(post(path, "", key)).headers.at("allow"), "GET, HEAD") << path;
  }
  EXPECT_EQ(guarded.ask(get("/ping")).status, 200);
  EXPECT_EQ(guarded.ask("DELETE /ping HTTP/1.1\r\nHost: test\r\n\r\n").headers.at("allow"),
            "GET, HEAD, POST");
  TestServer server;
  for (const char* const path : {"/tokenize", "/v1/tokenize", "/detokenize", "/v1/detokenize"}) {
    const std::string body = R"({"prompt": "x", "tokens": [1]})";
    EXPECT_EQ(guarded.ask(post(path, body)).status, 401) << path;
    EXPECT_EQ(guarded.ask(post(path, body, key)).status, 200) << path;
    EXPECT_EQ(server.ask(get(path)).headers.at("allow"), "POST") << path;
    EXPECT_EQ(server.ask(post(path, body, "Origin: http://elsewhere\r\n")).status, 403) << path;
  }
  EXPECT_TRUE(
      server.comes_to_show(R"(motley_http_requests_total{route="/v1/tokenize",status="403"} 1)"));
}

TEST(Models, SayTheContextOfAdaptersToo) {
  TestServer server({.adapter_loading = true});
  server.ask(post("/v1/load_lora_adapter", R"({"lora_name": "poet", "lora_path": "/tmp"})"));
  const json::Value models = server.ask(get("/v1/models")).json();
  EXPECT_EQ(text_at(models, "data.0.max_model_len"), "1000");
  EXPECT_EQ(text_at(models, "data.1.id"), "poet");
  EXPECT_EQ(text_at(models, "data.1.max_model_len"), "1000");
}

TEST(Paths, MayHaveSlashesTwiceAndAtTheEnd) {
  TestServer server;
  server.engine().say("x");
  for (const char* const path :
       {"//v1/completions", "/v1//completions", "/v1/completions/", "//v1///completions//?a=b"})
    EXPECT_EQ(server.ask(post(path, R"({"prompt": "x"})")).status, 200) << path;
  for (const char* const path :
       {"/v1/models/", "/v1//models", "/v1/models//base/", "//", "//ping/"})
    EXPECT_EQ(server.ask(get(path)).status, 200) << path;
  EXPECT_EQ(text_at(server.ask(get("/v1/models/")).json(), "object"), "list");
  for (const char* const path : {"/v1/./models", "/v1/x/../models", "/%2Fv1/models", "v1/models/x"})
    EXPECT_NE(server.ask(get(path)).status, 200) << path;
  EXPECT_TRUE(server.comes_to_show(
      R"(motley_http_requests_total{route="/v1/completions",status="200"} 4)"));
}

TEST(Paths, LeadToWhatGuardsTheRoute) {
  TestServer guarded({.keys = {"secret"}});
  EXPECT_EQ(guarded.ask(post("//v1/completions/", R"({"prompt": "x"})")).status, 401);
  EXPECT_EQ(guarded.ask(get("/v1//models/")).status, 401);
  TestServer server({.adapter_loading = true});
  EXPECT_EQ(
      server.ask(post("/v1//completions", R"({"prompt": "x"})", "Origin: http://elsewhere\r\n"))
          .status,
      403);
  EXPECT_EQ(server.ask(get("/v1/completions/")).headers.at("allow"), "POST");
  // What proxies forbid by its path has one path.
  for (const char* const path : {"//v1/load_lora_adapter", "/v1/unload_lora_adapter/"})
    EXPECT_EQ(server.ask(post(path, "{}")).status, 404) << path;
  EXPECT_EQ(server.ask(get("//metrics")).status, 404);
}

TEST(Suggestions, NameTheRouteThatWasMeant) {
  TestServer server;
  const auto advice = [&](std::string_view path) {
    const Received reply = server.ask(post(path, "{}"));
    EXPECT_EQ(reply.status, 404) << path;
    return reply.error("message");
  };
  EXPECT_THAT(advice("/v1/chat/completion"), HasSubstr("did you mean /v1/chat/completions?"));
  EXPECT_THAT(advice("//v1//completion/"), HasSubstr("did you mean /v1/completions?"));
  EXPECT_THAT(advice("/elsewhere/entirely"), Not(HasSubstr("did you mean")));
  EXPECT_THAT(advice(cat("/v1/completions", std::string(10'000, 's'))),
              Not(HasSubstr("did you mean")));
}

TEST(Suggestions, NameTheModelThatWasMeant) {
  TestServer server({.adapter_loading = true});
  server.engine().say("x");
  ASSERT_EQ(
      server.ask(post("/v1/load_lora_adapter", R"({"lora_name": "cynic", "lora_path": "/tmp"})"))
          .status,
      200);
  const std::string cynik = R"("model": "cynik")";
  const std::string meant = "did you mean cynic? GET /v1/models lists those there are";
  for (const auto& [path, fields] : std::vector<std::pair<std::string, std::string>>{
           {"/v1/completions", R"("prompt": "x")"},
           {"/v1/chat/completions", R"("messages": [{"role": "user", "content": "x"}])"},
           {"/v1/responses", R"("input": "x")"},
           {"/v1/messages", R"("max_tokens": 1, "messages": [{"role": "user", "content": "x"}])"},
           {"/tokenize", R"("prompt": "x")"}}) {
    const Received reply = server.ask(post(path, cat("{", cynik, ", ", fields, "}")));
    EXPECT_EQ(reply.status, 404) << path << reply.body;
    EXPECT_THAT(reply.error("message"), HasSubstr(meant)) << path;
  }
  EXPECT_THAT(server.ask(get("/v1/models/base:cynik")).error("message"), HasSubstr(meant));
  EXPECT_THAT(server.ask(get("/v1/models/bas")).error("message"), HasSubstr("did you mean base?"));
  EXPECT_THAT(server.ask(get("/v1/models/gpt-4o")).error("message"),
              Not(HasSubstr("did you mean")));
  EXPECT_THAT(
      server
          .ask(post("/v1/completions",
                    R"({"prompt": "x", "adapters": [{"name": "cynic"}, {"name": "poet"}]})"))
          .error("message"),
      Not(HasSubstr("did you mean")));
}

TEST(Ranges, WithoutAnUpperBoundAreNamedSo) {
  const TestServer server;
  const auto message = [&](std::string_view field) {
    return server.ask(post("/v1/completions", cat(R"({"prompt": "x", )", field, "}")))
        .error("message");
  };
  EXPECT_THAT(message(R"("temperature": -1)"),
              HasSubstr("-1 is out of range (temperature): use 0 or more"));
  EXPECT_THAT(message(R"("top_p": 2)"), HasSubstr("2 is out of range (top_p): use 0 to 1"));
}

TEST(PrefixCache, IsSharedBySaltOnEveryRoute) {
  TestServer server;
  TestServer apart({.private_prefixes = true});
  const std::vector<std::pair<std::string, std::string>> routes = {
      {"/v1/completions", R"("prompt": "x")"},
      {"/v1/chat/completions", R"("messages": [{"role": "user", "content": "x"}])"},
      {"/v1/responses", R"("input": "x")"},
      {"/v1/messages", R"("max_tokens": 1, "messages": [{"role": "user", "content": "x"}])"}};
  const auto salt_of = [&](TestServer& asked, const std::string& address, std::size_t route,
                           std::string_view more) {
    asked.engine().say("x");
    Client client(asked.port(), address);
    client.send(post(routes[route].first, cat("{", routes[route].second, more, "}")));
    EXPECT_EQ(client.receive().status, 200) << routes[route].first;
    return asked.engine().last_request().cache_salt;
  };
  const std::string_view mine = R"(, "cache_salt": "mine")";
  for (std::size_t route = 0; route < routes.size(); ++route) {
    EXPECT_EQ(salt_of(server, "127.0.0.1", route, ""), "");
    EXPECT_EQ(salt_of(server, "127.0.0.1", route, mine), "mine");
    const std::string first = salt_of(apart, "127.0.0.1", route, "");
    EXPECT_NE(first, salt_of(apart, "127.0.0.2", route, "")) << "another client";
    EXPECT_NE(first, salt_of(apart, "127.0.0.1", route, mine));
    EXPECT_EQ(first, salt_of(apart, "127.0.0.1", 0, "")) << "the same client";
    EXPECT_NE(salt_of(apart, "127.0.0.1", route, mine), salt_of(apart, "127.0.0.2", route, mine));
    // A long one is known by its hash.
    const auto of_length = [&](std::size_t length, char last) {
      const std::string salt = cat(std::string(length - 1, 's'), last);
      return salt_of(server, "127.0.0.1", route, cat(R"(, "cache_salt": ")", salt, "\""));
    };
    EXPECT_LT(of_length(1024, 'a').size(), 100U);
    EXPECT_EQ(of_length(1024, 'a'), of_length(1024, 'a'));
    EXPECT_NE(of_length(1024, 'a'), of_length(1024, 'b'));
  }
}

}  // namespace
}  // namespace motley::server
