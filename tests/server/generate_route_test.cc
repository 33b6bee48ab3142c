// Tokens in, tokens out, as vLLM 0.33.0 has it, and as its clients read it: renderers 0.1.12 (for
// verifiers 0.4.0 and prime-rl), TRL 1.16.0 and SkyRL 0.4.0.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cat.h"
#include "server/json_paths.h"
#include "server/test_server.h"

namespace motley::server {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view generate = "/inference/v1/generate";

std::string body_of(std::string_view sampling = "", std::string_view more = "",
                    std::string_view ids = "[400, 500, 600]") {
  return cat(R"({"token_ids": )", ids, R"(, "sampling_params": {)", sampling, "}", more, "}");
}

class TokensIn : public testing::Test {
 protected:
  TokensIn() {
    server_.engine().say(std::vector<std::int32_t>{300, 301, 302});
    const Received loaded =
        server_.ask(post("/v1/load_lora_adapter", R"({"lora_name": "poet", "lora_path": "/tmp"})"));
    EXPECT_EQ(loaded.status, 200) << loaded.body;
  }

  json::Value ask(std::string_view sampling = "", std::string_view more = "") {
    const Received reply = server_.ask(post(generate, body_of(sampling, more)));
    EXPECT_EQ(reply.status, 200) << reply.body;
    return reply.json();
  }

  TestServer server_{{.adapter_loading = true}};
};

TEST_F(TokensIn, GivesIdsTheVersionsOfTheirWeightsAndUsage) {
  const json::Value body = ask(R"("max_tokens": 2)", R"(, "request_id": "rollout-7")");
  EXPECT_EQ(text_at(body, "request_id"), "generate-tokens-rollout-7");
  EXPECT_EQ(text_at(body, "model"), "base");
  EXPECT_EQ(text_at(body, "output_mode"), "tokens");
  EXPECT_EQ(text_at(body, "choices.0.index"), "0");
  EXPECT_EQ(text_at(body, "choices.0.token_ids"), "[300,301]");
  EXPECT_EQ(text_at(body, "choices.0.finish_reason"), "length");
  EXPECT_EQ(text_at(body, "choices.0.stop_reason"), "null");
  EXPECT_EQ(text_at(body, "choices.0.logprobs"), "null");
  EXPECT_EQ(text_at(body, "choices.0.routed_experts"), "null");
  EXPECT_EQ(text_at(body, "choices.0.weight_versions"),
            R"([{"version":"default","start":0,"end":2}])");
  EXPECT_EQ(text_at(body, "choices.0.text"), "(absent)");
  EXPECT_EQ(text_at(body, "usage.prompt_tokens"), "3");
  EXPECT_EQ(text_at(body, "usage.completion_tokens"), "2");
  for (const char* const name : {"prompt_logprobs", "prompt_token_id_logprobs", "prompt_token_ids"})
    EXPECT_EQ(text_at(body, name), "null") << name;
  EXPECT_EQ(server_.engine().last_request().max_tokens, 2);

  EXPECT_EQ(text_at(ask("", R"(, "return_token_ids": true)"), "prompt_token_ids"), "[400,500,600]");
  EXPECT_EQ(server_.engine().last_request().max_tokens, 997) << "up to the context";
  EXPECT_EQ(text_at(ask(R"("max_tokens": 0)"), "choices.0.weight_versions"), "[]");
}

TEST_F(TokensIn, GivesLogProbabilitiesInBothForms) {
  const json::Value body = ask(R"("max_tokens": 1, "logprobs": 2)");
  EXPECT_EQ(text_at(body, "choices.0.logprobs"),
            R"({"content":[{"token":"token_id:300","token_id":300,"logprob":-0.125,"rank":3,)"
            R"("top_logprobs":[{"token":"token_id:300","token_id":300,"logprob":-0.125,)"
            R"("rank":3}]}]})");
  EXPECT_TRUE(server_.engine().last_request().sampling.ranks);
  EXPECT_EQ(server_.engine().last_request().sampling.top_logprobs, 2);
}

TEST_F(TokensIn, GivesTextToo) {
  const json::Value body = ask(R"("max_tokens": 2, "logprobs": 0)", R"(, "output_mode": "text")");
  const std::vector<std::int32_t> said = {300, 301};
  EXPECT_EQ(text_at(body, "choices.0.text"), server_.text().tokenizer().decode(said, true));
  EXPECT_EQ(text_at(body, "choices.0.token_ids"), "[300,301]");
  EXPECT_EQ(text_at(body, "choices.0.logprobs.content.0.token"),
            server_.text().tokenizer().decode(std::span(said).first(1), false));
  EXPECT_EQ(text_at(body, "output_mode"), "text");
}

TEST_F(TokensIn, SaysWhatEndedAChoice) {
  EXPECT_EQ(text_at(ask(R"("stop_token_ids": [301])"), "choices.0.stop_reason"), "301");
  EXPECT_EQ(text_at(ask(R"("stop_token_ids": [301])"), "choices.0.token_ids"), "[300,301]");
  const std::vector<std::int32_t> second = {301};
  const std::string word = server_.text().tokenizer().decode(second, false);
  const json::Value stopped = ask(cat(R"("stop": [)", json::string_literal(word), "]"));
  EXPECT_EQ(text_at(stopped, "choices.0.finish_reason"), "stop");
  EXPECT_EQ(text_at(stopped, "choices.0.stop_reason"), word);
  const std::int32_t end = *server_.text().tokenizer().id_of("<|im_end|>");
  server_.engine().say(std::vector<std::int32_t>{300, end});
  const json::Value ended = ask();
  EXPECT_EQ(text_at(ended, "choices.0.finish_reason"), "stop");
  EXPECT_EQ(text_at(ended, "choices.0.stop_reason"), "null") << "an end token of the model";
  EXPECT_EQ(text_at(ended, "choices.0.token_ids"), cat("[300,", end, "]"));
}

TEST_F(TokensIn, NamesTheVersionOfTheAdapter) {
  const json::Value body = ask(R"("max_tokens": 3)", R"(, "model": "poet")");
  EXPECT_EQ(text_at(body, "model"), "poet");
  EXPECT_EQ(text_at(body, "choices.0.weight_versions"),
            R"([{"version":"poet@1","start":0,"end":3}])");
  EXPECT_EQ(text_at(body, "adapter_version"), "poet@1");
}

TEST_F(TokensIn, StreamsWhatTheWholeAnswerHas) {
  const json::Value whole =
      ask(R"("n": 2, "logprobs": 1)", R"(, "model": "poet", "return_token_ids": true)");
  const Received streamed = server_.ask(
      post(generate, body_of(R"("n": 2, "logprobs": 1)",
                             R"(, "model": "poet", "stream": true, "return_token_ids": true,
                                "stream_options": {"include_usage": true})")));
  ASSERT_TRUE(streamed.done()) << streamed.body;
  const auto events = streamed.events();
  EXPECT_EQ(text_at(events.front(), "prompt_token_ids"), "[400,500,600]");
  std::vector<std::string> ids(2);
  std::vector<std::string> scores(2);
  std::vector<std::string> versions(2);
  for (const json::Value& event : events) {
    if (&event == &events.back()) break;
    EXPECT_EQ(text_at(event, "prompt_token_ids") != "(absent)", &event == &events.front());
    const auto index = static_cast<std::size_t>(*at(event, "choices.0.index").if_integer());
    const auto add = [&](std::string& all, std::string_view path) {
      const std::string part = json::write(at(event, path));
      if (part.size() > 2) all += cat(all.empty() ? "" : ",", part.substr(1, part.size() - 2));
    };
    add(ids[index], "choices.0.token_ids");
    add(scores[index], "choices.0.logprobs.content");
    const bool ends = text_at(event, "choices.0.finish_reason") != "null";
    EXPECT_EQ(text_at(event, "choices.0.weight_versions") != "null", ends);
    if (!ends) continue;
    versions[index] = text_at(event, "choices.0.weight_versions");
    EXPECT_EQ(text_at(event, "adapter_version"), "poet@1");
  }
  for (std::size_t i = 0; i < 2; ++i) {
    const std::string choice = cat("choices.", i);
    EXPECT_EQ(cat("[", ids[i], "]"), text_at(whole, cat(choice, ".token_ids")));
    EXPECT_EQ(cat("[", scores[i], "]"), text_at(whole, cat(choice, ".logprobs.content")));
    EXPECT_EQ(versions[i], text_at(whole, cat(choice, ".weight_versions")));
  }
  EXPECT_EQ(text_at(events.back(), "choices"), "[]");
  EXPECT_EQ(json::write(at(events.back(), "usage")), json::write(at(whole, "usage")));
}

TEST_F(TokensIn, ScoresAPrompt) {
  // As prime-rl asks.
  const json::Value body = ask(R"("max_tokens": 1, "prompt_logprobs": 1)");
  EXPECT_EQ(text_at(body, "prompt_logprobs.0"), "null");
  const json::Object* const first = at(body, "prompt_logprobs.1").if_object();
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->members().front().key, "500") << "the prompt's token comes first";
  EXPECT_EQ(text_at(body, "prompt_logprobs.2.600.logprob"), "-2.0");

  const json::Value last =
      ask(R"("max_tokens": 0, "prompt_logprobs": 0, "prompt_logprob_start": -1)");
  EXPECT_EQ(text_at(last, "prompt_logprobs.1"), "null");
  EXPECT_EQ(text_at(last, "prompt_logprobs.2.600.logprob"), "-2.0");
  EXPECT_EQ(server_.engine().last_request().prompt_first, 2);
  const json::Value same =
      ask(R"("max_tokens": 0, "prompt_logprobs": 0, "prompt_logprob_start": 1)");
  EXPECT_EQ(json::write(at(same, "prompt_logprobs")), json::write(at(last, "prompt_logprobs")));
}

TEST_F(TokensIn, ScoresTokensThatAreNamed) {
  const std::string named = R"("prompt_logprob_token_ids": [[1, 2], [-1, 4]])";
  const json::Value body = ask(cat(R"("max_tokens": 0, )", named));
  EXPECT_EQ(text_at(body, "prompt_logprobs"), "null");
  const std::string scores = text_at(body, "prompt_token_id_logprobs");
  EXPECT_THAT(scores, testing::StartsWith("k05VTVBZ"));
  // 128 bytes of the file's head are no whole group of base64.
  EXPECT_EQ(scores.size(), (128 + 16 + 2) / 3 * 4U);
  // In completions and chats.
  const Received completion = server_.ask(
      post("/v1/completions", cat(R"({"prompt": [400, 500, 600], "max_tokens": 0, )", named, "}")));
  EXPECT_EQ(text_at(completion.json(), "choices.0.prompt_token_id_logprobs"), scores)
      << completion.body;
  const Received chat =
      server_.ask(post("/v1/chat/completions",
                       cat(R"({"messages": [{"role": "user", "content": "x"}], "max_tokens": 1, )",
                           R"("prompt_logprob_start": -2, "prompt_logprobs": 0, )", named, "}")));
  EXPECT_EQ(text_at(chat.json(), "prompt_token_id_logprobs"), scores) << chat.body;
  EXPECT_EQ(text_at(chat.json(), "prompt_logprobs.0"), "null");

  for (const char* const wrong :
       {R"("prompt_logprob_token_ids": [[1]])", R"("prompt_logprob_token_ids": [[1], [2], [3]])",
        R"("prompt_logprob_token_ids": [[1], [2]], "prompt_logprob_start": 1)"}) {
    const Received refused = server_.ask(post(generate, body_of(wrong)));
    EXPECT_EQ(refused.status, 400) << wrong;
    EXPECT_THAT(refused.error("param"), HasSubstr("prompt_logprob_token_ids")) << wrong;
  }
  const Received several = server_.ask(post(
      "/v1/completions", cat(R"({"prompt": [[400, 500, 600], [400, 500, 600]], )", named, "}")));
  EXPECT_EQ(several.error("param"), "prompt_logprob_token_ids");
  const Received echoed =
      server_.ask(post("/v1/completions", R"({"prompt": [400, 500], "echo": true, "logprobs": 1,
                                  "prompt_logprobs": 1, "prompt_logprob_start": -1})"));
  EXPECT_EQ(echoed.error("param"), "prompt_logprob_start");
}

// The body of renderers 0.1.12, and of SkyRL 0.4.0 on its route.
TEST_F(TokensIn, ScoresNamedTokensAtEachDrawnOne) {
  // As vLLM's clients ask: with their number, or without.
  for (const char* const more : {R"(, "logprobs": 4)", ""}) {
    const json::Value body =
        ask(cat(R"("max_tokens": 1, "logprob_token_ids": [7, 300, 7, 9])", more));
    EXPECT_EQ(server_.engine().last_request().sampling.logprob_tokens,
              (std::vector<std::int32_t>{7, 300, 9}))
        << "each once, in the request's order";
    EXPECT_EQ(text_at(body, "choices.0.logprobs.content.0.top_logprobs"),
              R"([{"token":"token_id:300","token_id":300,"logprob":-0.125,"rank":3},)"
              R"({"token":"token_id:7","token_id":7,"logprob":-1.125,"rank":40},)"
              R"({"token":"token_id:9","token_id":9,"logprob":-3.125,"rank":120}])");
  }
  const std::string asked = R"("n": 2, "logprob_token_ids": [5, 6])";
  const json::Value whole = ask(asked);
  const Received stream = server_.ask(post(generate, body_of(asked, R"(, "stream": true)")));
  ASSERT_TRUE(stream.done()) << stream.body;
  EXPECT_EQ(text_at(stream.events().front(), "choices.0.logprobs.content.0"),
            text_at(whole, "choices.0.logprobs.content.0"));

  const json::Value text =
      ask(R"("max_tokens": 1, "logprob_token_ids": [7])", R"(, "output_mode": "text")");
  EXPECT_EQ(text_at(text, "choices.0.logprobs.content.0.top_logprobs.0.logprob"), "-0.125");
  EXPECT_EQ(text_at(text, "choices.0.logprobs.content.0.top_logprobs.1.logprob"), "-1.125");
  std::string many = "0";
  for (int id = 1; id <= 20; ++id) many += cat(",", id);
  const Received refused =
      server_.ask(post(generate, body_of(cat(R"("logprob_token_ids": [)", many, "]"))));
  EXPECT_EQ(refused.status, 400) << "more than --max-logprobs";
  EXPECT_EQ(refused.error("param"), "sampling_params.logprob_token_ids");
}

TEST_F(TokensIn, TakesWhatClientsSend) {
  const std::string body = R"({"model": "base", "token_ids": [400, 500], "sampling_params":
      {"max_tokens": 2, "temperature": 1.0, "stop_token_ids": [299], "logprobs": 1,
       "skip_special_tokens": false, "routed_experts_prompt_start": 0},
      "cache_salt": "7", "priority": 0})";
  const Received renderers = server_.ask(post(generate, body, "X-Session-ID: session-3\r\n"));
  EXPECT_EQ(renderers.status, 200);
  EXPECT_FALSE(renderers.headers.contains("x-motley-ignored"));
  for (std::size_t i = 0; i < 2; ++i) {
    const std::string entry = cat("choices.0.logprobs.content.", i);
    EXPECT_EQ(text_at(renderers.json(), cat(entry, ".token")), cat("token_id:", 300 + i));
    EXPECT_TRUE(at(renderers.json(), cat(entry, ".rank")).if_integer());
  }
  const Received skyrl = server_.ask(post("/skyrl/v1/generate", body));
  EXPECT_EQ(skyrl.status, 200);
  EXPECT_EQ(text_at(skyrl.json(), "choices.0.token_ids"), "[300,301]");
}

TEST_F(TokensIn, AreAbortedByTheIdOfTheirAnswer) {
  server_.engine().hold_after(1);
  Client client(server_.port());
  client.send(post(generate, body_of("", R"(, "request_id": "rollout-7")")));
  server_.engine().wait_for_submitted(1);
  const Received aborted = server_.ask(
      post("/inference/v1/abort_requests", R"({"request_ids": ["generate-tokens-rollout-7"]})"));
  EXPECT_EQ(text_at(aborted.json(), "aborted"), "1");
  const Received reply = client.receive();
  EXPECT_EQ(text_at(reply.json(), "choices.0.finish_reason"), "abort") << reply.body;
}

TEST_F(TokensIn, RefusesWhatIsTooMuchOrTooLong) {
  std::string many = "[";
  for (int i = 0; i < 1200; ++i) many += cat(i == 0 ? "" : ",", 400);
  const Received longer = server_.ask(post(generate, body_of("", "", many + "]")));
  EXPECT_EQ(longer.status, 400);
  EXPECT_EQ(longer.error("code"), "context_length_exceeded");
  const Received deep = server_.ask(
      post(generate, body_of(cat(R"("structured_outputs": )", std::string(5000, '[')))));
  EXPECT_EQ(deep.status, 400);
  EXPECT_EQ(server_.ask(post(generate, body_of(R"("n": 129)"))).error("param"),
            "sampling_params.n");
  EXPECT_EQ(server_.ask(post(generate, "[]")).status, 400);
  EXPECT_EQ(server_.ask(get(generate)).status, 405);
}

TEST(TokensInOfKeys, NeedAKeyAndItsAdapters) {
  const TestServer server({.keys = {"secret"}, .admin_keys = {"admin"}});
  EXPECT_EQ(server.ask(post(generate, body_of())).status, 401);
  EXPECT_EQ(server.ask(post(generate, body_of(), "Authorization: Bearer secret\r\n")).status, 200);
}

TEST(TokensInOfStrictServers, HaveNoUnknownFields) {
  const TestServer server({.strict_fields = true});
  EXPECT_EQ(server.ask(post(generate, body_of("", R"(, "odd": 1)"))).error("param"), "odd");
  EXPECT_EQ(server.ask(post(generate, body_of(R"("odd": 1)"))).error("param"),
            "sampling_params.odd");
}

}  // namespace
}  // namespace motley::server
