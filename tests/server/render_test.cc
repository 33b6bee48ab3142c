// A chat or a completion as requests for /inference/v1/generate (vLLM 0.33.0), for TRL 1.16.0 and
// SkyRL 0.4.0.

#include <string>
#include <string_view>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "server/json_paths.h"
#include "server/test_server.h"

namespace motley::server {
namespace {

constexpr std::string_view chats = "/v1/chat/completions";
constexpr std::string_view completions = "/v1/completions";
constexpr std::string_view question = R"("messages": [{"role": "user", "content": "x y"}])";

class Render : public testing::Test {
 protected:
  Render() {
    server_.engine().say(std::vector<std::int32_t>{300, 301, 302});
    const Received loaded =
        server_.ask(post("/v1/load_lora_adapter", R"({"lora_name": "poet", "lora_path": "/tmp"})"));
    EXPECT_EQ(loaded.status, 200) << loaded.body;
  }

  // What the engine gets of a request.
  engine::Request asked(std::string_view path, std::string_view body) {
    const Received reply = server_.ask(post(path, body));
    EXPECT_EQ(reply.status, 200) << body << "\n" << reply.body;
    return server_.engine().last_request();
  }
  Received render(std::string_view path, std::string_view body) {
    return server_.ask(post(cat(path, "/render"), body));
  }

  TestServer server_{{.adapter_loading = true}};
};

void expect_same(const engine::Request& rendered, const engine::Request& direct) {
  EXPECT_EQ(rendered.tokens, direct.tokens);
  EXPECT_EQ(rendered.adapters, direct.adapters);
  EXPECT_EQ(rendered.max_tokens, direct.max_tokens);
  EXPECT_EQ(rendered.end_ids, direct.end_ids);
  EXPECT_EQ(rendered.stop_ids, direct.stop_ids);
  EXPECT_EQ(rendered.choices, direct.choices);
  EXPECT_EQ(rendered.priority, direct.priority);
  EXPECT_EQ(rendered.cache_salt, direct.cache_salt);
  EXPECT_EQ(rendered.prompt_logprobs, direct.prompt_logprobs);
  EXPECT_EQ(rendered.prompt_first, direct.prompt_first);
  EXPECT_EQ(rendered.prompt_top, direct.prompt_top);
  EXPECT_EQ(rendered.prompt_named.ids, direct.prompt_named.ids);
  const engine::SamplingParams& one = rendered.sampling;
  const engine::SamplingParams& other = direct.sampling;
  EXPECT_EQ(one.temperature, other.temperature);
  EXPECT_EQ(one.top_k, other.top_k);
  EXPECT_EQ(one.top_p, other.top_p);
  EXPECT_EQ(one.min_p, other.min_p);
  EXPECT_EQ(one.repetition_penalty, other.repetition_penalty);
  EXPECT_EQ(one.frequency_penalty, other.frequency_penalty);
  EXPECT_EQ(one.presence_penalty, other.presence_penalty);
  EXPECT_EQ(one.logit_bias, other.logit_bias);
  EXPECT_EQ(one.allowed_tokens, other.allowed_tokens);
  EXPECT_EQ(one.banned, other.banned);
  EXPECT_EQ(one.seed, other.seed);
  EXPECT_EQ(one.logprobs, other.logprobs);
  EXPECT_EQ(one.logprob_tokens, other.logprob_tokens);
  EXPECT_EQ(one.alternatives(), other.alternatives());
  EXPECT_EQ(one.min_tokens, other.min_tokens);
  EXPECT_EQ(one.ignore_eos, other.ignore_eos);
}

TEST_F(Render, AChatIsTheRequestThatGenerateTakes) {
  for (const char* const more :
       {"", R"(, "max_tokens": 2, "temperature": 0.7, "top_p": 0.9, "top_k": 5, "min_p": 0.1)",
        R"(, "n": 2, "seed": -7, "stop": ["z", "\"q\""], "stop_token_ids": [301, 9])",
        R"(, "logprobs": true, "top_logprobs": 3, "presence_penalty": 0.5, "min_tokens": 2)",
        R"(, "logprobs": true, "logprob_token_ids": [7, 9], "ignore_eos": true)",
        R"(, "logit_bias": {"5": -1.5, "7": 100}, "allowed_token_ids": [5, 7], "top_p": 0)",
        R"(, "bad_words": ["no"], "frequency_penalty": -0.3, "repetition_penalty": 1.1)",
        R"(, "prompt_logprobs": 2, "prompt_logprob_start": -2, "max_tokens": 0)",
        R"(, "prompt_logprob_token_ids": [[7, -1]], "prompt_logprob_start": -1)",
        R"(, "model": "poet", "cache_salt": "s", "priority": 3, "skip_special_tokens": false)",
        R"(, "adapters": [{"name": "poet", "scale": 0.5}], "truncate_prompt_tokens": 3)"}) {
    SCOPED_TRACE(more);
    const std::string body = cat("{", question, more, "}");
    const Received rendered = render(chats, body);
    ASSERT_EQ(rendered.status, 200) << rendered.body;
    const engine::Request direct = asked(chats, body);
    expect_same(asked("/inference/v1/generate", rendered.body), direct);
    EXPECT_FALSE(rendered.headers.contains("x-motley-ignored"));
  }
}

TEST_F(Render, GeneratesNothing) {
  const engine::Request before = asked(completions, R"({"prompt": [1, 2]})");
  const json::Value body =
      render(chats, cat("{", question, R"(, "request_id": "r-7", "stream": true,
                          "stream_options": {"include_usage": true}})"))
          .json();
  EXPECT_EQ(server_.engine().last_request().tokens, before.tokens);
  EXPECT_EQ(text_at(body, "request_id"), "chatcmpl-r-7");
  EXPECT_EQ(text_at(body, "model"), "base");
  EXPECT_EQ(text_at(body, "features"), "null");
  EXPECT_EQ(text_at(body, "stream"), "true");
  EXPECT_EQ(text_at(body, "stream_options.include_usage"), "true");
  const json::Value tokens = server_.ask(post("/tokenize", cat("{", question, "}"))).json();
  EXPECT_EQ(text_at(body, "token_ids"), text_at(tokens, "tokens"));
}

TEST_F(Render, CompletionsAreAList) {
  const json::Value one = render(completions, R"({"prompt": "x y", "max_tokens": 3})").json();
  ASSERT_NE(one.if_array(), nullptr);
  ASSERT_EQ(one.if_array()->size(), 1U);
  EXPECT_THAT(text_at(one, "0.request_id"), testing::StartsWith("cmpl-"));
  EXPECT_EQ(text_at(one, "0.sampling_params"), R"({"max_tokens":3})");
  const std::string several =
      R"({"prompt": [[5, 6], [7, 8, 9]], "request_id": "two", "guided_choice": ["a", "b"]})";
  const json::Value two = render(completions, several).json();
  EXPECT_EQ(text_at(two, "0.token_ids"), "[5,6]");
  EXPECT_EQ(text_at(two, "1.token_ids"), "[7,8,9]");
  EXPECT_EQ(text_at(two, "1.request_id"), "cmpl-two-1");
  EXPECT_EQ(text_at(two, "1.sampling_params.guided_choice"), R"(["a","b"])");
  const engine::Request last = asked(completions, R"({"prompt": [7, 8, 9]})");
  expect_same(asked("/inference/v1/generate", json::write(at(two, "1"))), last);
}

TEST_F(Render, RefusesWhatTheGeneratingRouteRefuses) {
  const std::string messages(question);
  for (const auto& [body, status, field] :
       std::initializer_list<std::tuple<std::string, int, std::string>>{
           {"{}", 400, "messages"},
           {cat("{", messages, R"(, "temperature": -1})"), 400, "temperature"},
           {cat("{", messages, R"(, "model": "unknown"})"), 404, "model"},
           {cat("{", messages, R"(, "use_beam_search": true})"), 400, "use_beam_search"},
           {cat(R"({"messages": [{"role": "user", "content": ")", std::string(20'000, 'a'),
                "\"}]}"),
            400, "messages"}}) {
    const Received direct = server_.ask(post(chats, body));
    const Received refused = render(chats, body);
    EXPECT_EQ(refused.status, status) << refused.body;
    EXPECT_EQ(refused.error("param"), field) << refused.body;
    EXPECT_EQ(refused.status, direct.status);
    // Whether an adapter is there is known without the engine.
    if (status == 400) {
      EXPECT_EQ(refused.error("message"), direct.error("message"));
    }
  }
}

}  // namespace
}  // namespace motley::server
