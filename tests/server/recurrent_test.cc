// The server over Qwen3.5, whose delta nets keep a state for each sequence.

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/golden_engine.h"
#include "server/json_paths.h"
#include "server/test_server.h"

namespace motley::server {
namespace {

using engine_tests::GoldenEngine;

std::vector<std::int64_t> numbers_at(const json::Value& answer, std::string_view key) {
  std::vector<std::int64_t> numbers;
  const json::Value* const choices = answer.if_object()->find("choices");
  if (choices == nullptr) return numbers;
  const json::Value* const list = choices->if_array()->front().if_object()->find(key);
  for (const json::Value& each : *list->if_array()) numbers.push_back(*each.if_integer());
  return numbers;
}

json::Value complete(const TestServer& server, const std::vector<std::int64_t>& prompt,
                     std::int64_t max_tokens) {
  json::Array ids;
  for (const std::int64_t id : prompt) ids.emplace_back(id);
  const json::Object body{{"prompt", std::move(ids)},
                          {"max_tokens", max_tokens},
                          {"temperature", std::int64_t{0}},
                          {"ignore_eos", true},
                          {"return_token_ids", true}};
  const Received received = server.ask(post("/v1/completions", json::write(body)));
  EXPECT_EQ(received.status, 200) << received.body;
  return received.json();
}

// An agent's loop, whose prompts contain its answers and what its tools said: each turn computes
// what is new, and says what it says in a server that keeps nothing.
TEST(RecurrentModels, EachTurnGoesOnFromTheLastAnswersState) {
  score_tests::GoldenModel golden("qwen3_5_moe", {});
  GoldenEngine world(golden, {.max_tokens = 128});
  GoldenEngine forgetful_world(golden, {.max_tokens = 128, .prefix_cache = false});
  // The model's vocabulary has the first 131 ids.
  const TestTokenizer tokenizer{.name = "qwen2", .end = "!"};
  TestServer server(
      {.tokenizer = tokenizer, .max_sequence_tokens = 128, .engine = &world.engine()});
  TestServer forgetful(
      {.tokenizer = tokenizer, .max_sequence_tokens = 128, .engine = &forgetful_world.engine()});
  std::vector<std::int64_t> prompt;
  for (std::int64_t i = 0; i < 20; ++i) prompt.push_back((11 * i * i + 5 * i) % 131);
  std::int64_t hits = 0;
  for (int turn = 0; turn < 4; ++turn) {
    const json::Value answer = complete(server, prompt, 12);
    const std::vector<std::int64_t> said = numbers_at(answer, "token_ids");
    ASSERT_EQ(said.size(), 12U);
    EXPECT_EQ(said, numbers_at(complete(forgetful, prompt, 12), "token_ids")) << "turn " << turn;
    // All of the turns before, up to the last border of 16. The answer's last token was drawn and
    // not computed.
    const std::int64_t cached = turn == 0 ? 0 : (std::ssize(prompt) - 7) / 16 * 16;
    EXPECT_EQ(text_at(answer, "usage.prompt_tokens_details.cached_tokens"), cat(cached))
        << "turn " << turn;
    hits += cached;
    prompt.insert(prompt.end(), said.begin(), said.end());
    // What a tool says.
    for (std::int64_t i = 0; i < 6; ++i) prompt.push_back((7 * i + turn) % 131);
  }
  EXPECT_TRUE(server.comes_to_show(cat("motley_prefix_hit_tokens_total ", hits)));
  EXPECT_TRUE(server.comes_to_show("motley_prefix_state_missed_tokens_total 0"));
}

// Of all lengths, so also where the last row of an answer ends a page.
TEST(RecurrentModels, AnAnswerMayEndAtABorder) {
  score_tests::GoldenModel golden("qwen3_5_moe", {});
  GoldenEngine world(golden, {});
  const TestTokenizer tokenizer{.name = "qwen2", .end = "!"};
  const TestServer server(
      {.tokenizer = tokenizer, .max_sequence_tokens = 64, .engine = &world.engine()});
  for (std::int64_t length = 1; length <= 16; ++length) {
    std::vector<std::int64_t> prompt{length};
    for (std::int64_t i = 1; i < 20; ++i) prompt.push_back((11 * i * i + 5 * i) % 131);
    const std::vector<std::int64_t> said =
        numbers_at(complete(server, prompt, length), "token_ids");
    ASSERT_EQ(std::ssize(said), length);
    prompt.insert(prompt.end(), said.begin(), said.end());
    for (std::int64_t i = 0; i < 6; ++i) prompt.push_back(7 * i);
    const std::int64_t computed = 20 + length - 1;
    EXPECT_EQ(text_at(complete(server, prompt, 1), "usage.prompt_tokens_details.cached_tokens"),
              cat(computed / 16 * 16))
        << "an answer of " << length;
  }
}

// Generation prompts begin reasoning, and what was thought is in no later prompt. All texts are of
// digits, which are tokens of this vocabulary.
TEST(RecurrentModels, TheNextTurnGoesOnBeforeReasoningThatItLeavesOut) {
  score_tests::GoldenModel golden("qwen3_5_moe", {});
  GoldenEngine world(golden, {});
  GoldenEngine forgetful_world(golden, {.prefix_cache = false});
  const TestServerOptions options{
      .tokenizer = {.name = "qwen2", .end = "!"},
      .chat_template =
          "{% for m in messages %}{{ 1 if m.role == 'user' else 2 }}{{ m.content }}3"
          "{% endfor %}{% if add_generation_prompt %}2444444444{% endif %}",
      .max_sequence_tokens = 64,
      .engine = &world.engine()};
  TestServerOptions without = options;
  without.engine = &forgetful_world.engine();
  TestServer server(options);
  TestServer forgetful(without);
  const auto ask = [](const TestServer& asked, std::string_view later) {
    const Received received = asked.ask(
        post("/v1/chat/completions",
             cat(R"({"messages": [{"role": "user", "content": "7777777777777777777777777777"})",
                 later, R"(], "max_tokens": 6, "temperature": 0, "return_token_ids": true})")));
    EXPECT_EQ(received.status, 200) << received.body;
    return received.json();
  };
  const json::Value first = ask(server, "");
  // The last border, 32, is in the generation prompt.
  EXPECT_EQ(text_at(first, "usage.prompt_tokens"), "40");
  const std::string_view later =
      R"(, {"role": "assistant", "content": "55"}, {"role": "user", "content": "666"})";
  const json::Value second = ask(server, later);
  EXPECT_EQ(text_at(second, "usage.prompt_tokens"), "49");
  EXPECT_EQ(text_at(second, "usage.prompt_tokens_details.cached_tokens"), "16");
  EXPECT_EQ(numbers_at(second, "token_ids"), numbers_at(ask(forgetful, later), "token_ids"));
}

// The answer goes on in the engine until the stop string has been found. Its state is saved only
// where the text that the client has goes on.
TEST(RecurrentModels, AStopStringKeepsTheTokensBeforeIt) {
  TestServer server;
  server.engine().say("1;2;3;4;5;6;7;8;");
  server.engine().hold_after(6);
  const Received received = server.ask(
      post("/v1/completions", R"({"prompt": "count", "stop": [";3;"], "max_tokens": 900})"));
  EXPECT_EQ(text_at(received.json(), "choices.0.text"), "1;2");
  EXPECT_EQ(server.engine().last_kept(), 3);
}

}  // namespace
}  // namespace motley::server
